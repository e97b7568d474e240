//! The only folder that touches the disk, the clock, processes, signals and the log. It knows nothing of bundles,
//! tenancy or docker; it gives the other folders safe verbs for what an operating system does.

pub mod clock;
pub mod disk;
pub mod interrupt;
pub mod lock;
pub mod log;
pub mod paths;
pub mod process;
pub mod user;
