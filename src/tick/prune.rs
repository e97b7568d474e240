//! Deleting images: after a good apply those that only deleted releases used, and with `tick --prune`, after an apply or
//! with nothing to do, all that no kept release uses. Docker is never forced, so an image that any container uses, a stranger's too, always stays.

use crate::deploy::release::{Release, Releases};
use crate::error::Result;
use crate::ordered::set_of;
use crate::settings::PruneImages;
use crate::tick::context::Context;
use std::collections::BTreeSet;

/// Deletes images; what docker refuses to delete stays.
///
/// # Errors
/// A failed file operation. Docker's refusals are no errors: an image too many does no harm.
pub fn images(context: &Context<'_>, releases: &Releases, deleted: &[Release]) -> Result<()> {
    let mut candidates: BTreeSet<String> = BTreeSet::new();
    if context.settings.prune_images == PruneImages::Old {
        candidates.extend(
            deleted
                .iter()
                .flat_map(|release| release.images.iter().map(|image| image.id.clone())),
        );
    }
    let docker = context.docker();
    if context.options.prune {
        match docker.image_ids() {
            Ok(ids) => candidates.extend(ids),
            Err(error) => log::warn!("images cannot be listed, none is pruned: {error}"),
        }
    }
    if candidates.is_empty() {
        return Ok(());
    }
    context.enter("deleting old images");
    let mut kept = Vec::new();
    for name in releases.list()? {
        kept.extend(
            releases
                .load(&name)?
                .into_iter()
                .flat_map(|release| release.images),
        );
    }
    let kept = set_of(kept.into_iter().map(|image| image.id));
    for id in candidates.difference(&kept).filter(|id| !id.is_empty()) {
        match docker.remove_image(id) {
            Ok(()) => log::info!(image = id; "old image deleted"),
            Err(error) => log::debug!(image = id; "image kept: {error}"),
        }
    }
    Ok(())
}
