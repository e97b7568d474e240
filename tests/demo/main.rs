//! `make demo`: the agent's main job, step by step, with nothing but this machine. The story is in `story.rs`.
//!
//! `demo AGENT APP STAND_IN`: the agent's binary, the static program for the containers, and the stand-in for docker that
//! is used where no engine answers. Ends with 0 when everything went as told, 1 when not, 130 on a signal; in each case
//! nothing is left behind.

mod engine;
mod lab;
mod look;
mod sample;
mod show;
mod signals;
mod story;

use std::ffi::OsString;
use std::process::ExitCode;

use engine::Engine;
use lab::Lab;
use signals::Signals;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [agent, app, stand_in] = args.as_slice() else {
        show::problem("usage: demo AGENT APP STAND_IN (tests/demo/run knows them)");
        return ExitCode::from(64);
    };
    let signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(error) => {
            show::problem(&format!("signals cannot be caught: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let told = Engine::choose(stand_in.as_ref())
        .and_then(|engine| Lab::open(agent.as_ref(), app.as_ref(), engine, &signals))
        // The lab is cleaned up when it is dropped, at the end of this call.
        .and_then(|mut lab| story::tell(&mut lab));
    match told {
        _ if signals.arrived() => {
            show::problem("stopped by a signal; what the demo had started is gone");
            ExitCode::from(130)
        }
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            show::problem(&format!("this is not what should have happened: {why}"));
            ExitCode::FAILURE
        }
    }
}
