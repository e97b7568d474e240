//! From a verified bundle to running containers: render, stage, promote, bring up, watch. `compose` holds the verbs of
//! docker, `release` what is staged on the disk, `live` the stable project directory, `health` the verdict on what runs.

pub mod compose;
pub mod compose_output;
pub mod drift;
pub mod env_file;
pub mod health;
pub mod live;
pub mod overlay;
pub mod proof;
pub mod registry;
pub mod release;
pub mod trouble;
