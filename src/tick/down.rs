//! Taking everything down. Volumes are data: they are deleted only where tenancy asks *and* this box, or whoever runs
//! this tick, allows it.

use crate::deploy::compose::Volumes;
use crate::deploy::live::Live;
use crate::deploy::registry;
use crate::deploy::release::Releases;
use crate::error::Result;
use crate::host::disk::Dir;
use crate::host::paths::deploy_dir;
use crate::settings::{Settings, VolumesOnAbsent};
use crate::state::Down;
use crate::tick::context::{Context, Memory, TickOptions};
use crate::tick::plan::Purge;

/// Whether this box, or this tick, allows volumes to be deleted.
pub fn may_purge(settings: &Settings, options: TickOptions) -> bool {
    options.purge_volumes
        || (settings.volumes_on_absent == VolumesOnAbsent::Purge && !settings.prod)
}

/// Takes the project down and forgets every rendered value.
///
/// # Errors
/// `DOWN_FAILED` and docker's own trouble; failed file operations.
pub fn take_down(context: &Context<'_>, memory: &mut Memory, purge: Purge) -> Result<String> {
    context.enter("compose down");
    let volumes = if purge == Purge::Go {
        Volumes::Purge
    } else {
        Volumes::Keep
    };
    context
        .docker()
        .down(volumes, &mut |line| context.keep_line(line))?;
    // The values go last: a `down` that fails is tried again.
    let deploy = Dir::open_or_create(&context.settings.deploy_dir)?;
    deploy.remove(deploy_dir::CURRENT)?;
    deploy.remove_tree(deploy_dir::INCOMING)?;
    Releases::open(&deploy)?.forget_values()?;
    Live::open(&deploy)?.forget_values()?;
    registry::write(context.state_dir, &[], false)?;
    memory.state.note_down(Down {
        at: context.started_at,
        purged: purge == Purge::Go,
    });
    let detail = match purge {
        Purge::NotAsked => "volumes kept".to_owned(),
        Purge::Go => "volumes deleted".to_owned(),
        Purge::NotAllowed => why_kept(context.settings),
    };
    log::info!("everything is down, {detail}");
    Ok(detail)
}

fn why_kept(settings: &Settings) -> String {
    let why = if settings.prod {
        "this box is prod"
    } else {
        "volumes_on_absent is keep"
    };
    format!(
        "volumes kept though tenancy asked to purge them: {why}; `monky-deployd tick --purge-volumes` on the box deletes them"
    )
}
