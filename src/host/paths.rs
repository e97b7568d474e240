//! Where the agent's own files are: every name below the state and deploy directories, in one place.

/// Names inside the state directory.
pub mod state_dir {
    /// What the agent remembers between ticks.
    pub const STATE: &str = "state.json";
    /// The OpenBao token.
    pub const TOKEN: &str = "token";
    /// A token that tenancy refused.
    pub const TOKEN_REFUSED: &str = "token.refused";
    /// Held with `flock` while a tick runs.
    pub const LOCK: &str = "lock";
    /// The agent's DOCKER_CONFIG directory.
    pub const DOCKER: &str = "docker";
    /// Docker's own configuration inside [`DOCKER`].
    pub const DOCKER_CONFIG: &str = "config.json";
    /// A granted lease that was not used yet.
    pub const LEASE: &str = "lease.json";
    /// When the last checkin was.
    pub const HEARTBEAT: &str = "heartbeat";
    /// What the last apply printed, redacted.
    pub const LAST_APPLY_LOG: &str = "last-apply.log";
}

/// Names inside the deploy directory.
pub mod deploy_dir {
    /// The staged releases.
    pub const RELEASES: &str = "releases";
    /// Members of the bundle that is being judged.
    pub const INCOMING: &str = ".incoming";
    /// Symbolic link to the release last brought up.
    pub const CURRENT: &str = "current";
    /// The stable project directory.
    pub const LIVE: &str = "live";
    /// The rendered variables, in a release and in `live`.
    pub const ENV: &str = ".env";
}
