//! Every stable code that a person, a log line or a report can show, in one table: its text, the exit code it leads to,
//! and where its cause lies. `docs/TROUBLESHOOTING.md` lists the same codes with their remedies; a test holds the two
//! against each other.

use crate::exit::Exit;
use std::fmt;

/// Where the cause of a failure lies. It decides how long the back-off may grow: what is wrong with the bundle stays
/// wrong, what is wrong around it may be mended any minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// In the bundle or in what it starts.
    Bundle,
    /// Outside the bundle: secrets, registry, disk, network, docker.
    Outside,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal, $exit:ident, $cause:ident;)+) => {
        /// The stable name of one kind of failure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($(#[doc = $doc])+ $name,)+ }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The text that reports, logs and documents show.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// The exit code of a tick that ends with this code.
            pub const fn exit(self) -> Exit {
                match self { $(Self::$name => Exit::$exit,)+ }
            }

            /// Where the cause lies.
            pub const fn cause(self) -> Cause {
                match self { $(Self::$name => Cause::$cause,)+ }
            }
        }
    };
}

codes! {
    /// The command line is wrong.
    Usage = "USAGE", Usage, Outside;
    /// The configuration, or a file that it names, is wrong.
    ConfigInvalid = "CONFIG_INVALID", Config, Outside;
    /// A file of ours that others may change, or that belongs to somebody else.
    FileUnsafe = "FILE_UNSAFE", Config, Outside;
    /// `state.json` was written by a newer agent or for another environment.
    StateForeign = "STATE_FOREIGN", Config, Outside;
    /// The grant, the token or the checkin belongs to another environment.
    EnvMismatch = "ENV_MISMATCH", Config, Outside;
    /// A local file could not be read or written.
    FileFailed = "FILE_FAILED", Failed, Outside;
    /// No space is left for the agent's own files.
    NoSpace = "NO_SPACE", Temporary, Outside;
    /// Another tick holds the lock.
    Locked = "LOCKED", Temporary, Outside;
    /// No connection: name resolution, dial, time-out, reset.
    Unreachable = "UNREACHABLE", Temporary, Outside;
    /// TLS could not be established.
    TlsFailed = "TLS_FAILED", Temporary, Outside;
    /// A peer's answer could not be understood.
    AnswerMalformed = "ANSWER_MALFORMED", Temporary, Outside;
    /// A peer is in trouble for now: 5xx, 429, sealed, standby.
    PeerTemporary = "PEER_TEMPORARY", Temporary, Outside;
    /// A peer refused the request for good.
    PeerRefused = "PEER_REFUSED", Failed, Outside;
    /// No grant is left that could give a token.
    NoGrant = "NO_GRANT", Failed, Outside;
    /// OpenBao refused the login.
    LoginRefused = "LOGIN_REFUSED", Failed, Outside;
    /// A lease without a login grant.
    LeaseShape = "LEASE_SHAPE", Failed, Outside;
    /// Tenancy asked for an action that this agent does not know.
    UnknownAction = "UNKNOWN_ACTION", Failed, Outside;
    /// The apply waits: held, or in back-off.
    PutOff = "PUT_OFF", Failed, Outside;
    /// The desired state moved on while its bundle was fetched.
    BundleGone = "BUNDLE_GONE", Temporary, Outside;
    /// The bundle's bytes are not the ones that were asked for.
    BundleShaMismatch = "BUNDLE_SHA_MISMATCH", Failed, Bundle;
    /// The bundle holds a member that could harm the box.
    BundleUnsafe = "BUNDLE_UNSAFE", Failed, Bundle;
    /// The bundle is not what it should be.
    BundleInvalid = "BUNDLE_INVALID", Failed, Bundle;
    /// The bundle was made for another environment.
    BundleEnvMismatch = "BUNDLE_ENV_MISMATCH", Failed, Bundle;
    /// A variable is referenced and nothing provides it.
    EnvIncomplete = "ENV_INCOMPLETE", Failed, Bundle;
    /// The template defines a name that would steer docker itself.
    EnvReserved = "ENV_RESERVED", Failed, Bundle;
    /// A value that `.env` cannot carry exactly.
    EnvRoundtrip = "ENV_ROUNDTRIP", Failed, Bundle;
    /// The manifest names a secret outside the environment's fence.
    ManifestPath = "MANIFEST_PATH", Failed, Bundle;
    /// The bundle wants a secret store that this agent does not speak to.
    SecretsProvider = "SECRETS_PROVIDER", Failed, Bundle;
    /// The bundle is older than the applied one.
    RollbackRefused = "ROLLBACK_REFUSED", Failed, Bundle;
    /// Not enough free bytes or inodes.
    DiskShort = "DISK_SHORT", Failed, Outside;
    /// An image that the bundle's own policy wants pinned is not.
    ImageNotPinned = "IMAGE_NOT_PINNED", Failed, Bundle;
    /// The bundle needs a newer agent.
    AgentTooOld = "AGENT_TOO_OLD", Failed, Bundle;
    /// A service would have to be built on the box.
    BuildUnsupported = "BUILD_UNSUPPORTED", Failed, Bundle;
    /// Compose refuses the file.
    ComposeInvalid = "COMPOSE_INVALID", Failed, Bundle;
    /// Containers under our project's name belong to somebody else.
    ProjectConflict = "PROJECT_CONFLICT", Failed, Outside;
    /// Secrets of the manifest could not be read.
    SecretsUnreadable = "SECRETS_UNREADABLE", Failed, Outside;
    /// The registry wants a credential, or refused ours.
    PullAuth = "PULL_AUTH", Failed, Outside;
    /// The registry does not know the image.
    PullNotFound = "PULL_NOT_FOUND", Failed, Bundle;
    /// The registry limits the rate of pulls.
    PullRateLimit = "PULL_RATE_LIMIT", Failed, Outside;
    /// The registry is out of reach.
    PullNetwork = "PULL_NETWORK", Failed, Outside;
    /// TLS to the registry failed.
    PullTls = "PULL_TLS", Failed, Outside;
    /// No space for the image.
    PullDisk = "PULL_DISK", Failed, Outside;
    /// The pull failed for another reason.
    PullFailed = "PULL_FAILED", Failed, Bundle;
    /// `docker compose up` failed.
    UpFailed = "UP_FAILED", Failed, Bundle;
    /// The containers did not become healthy.
    Unhealthy = "UNHEALTHY", Failed, Bundle;
    /// `docker compose down` failed.
    DownFailed = "DOWN_FAILED", Failed, Outside;
    /// The docker program or its compose plugin is missing or too old.
    DockerMissing = "DOCKER_MISSING", Failed, Outside;
    /// The agent may not use the docker socket.
    DockerPermission = "DOCKER_PERMISSION", Failed, Outside;
    /// The docker daemon does not run.
    DockerDown = "DOCKER_DOWN", Temporary, Outside;
    /// A docker command failed in another way.
    DockerFailed = "DOCKER_FAILED", Failed, Outside;
    /// A docker command, or the whole tick, ran past its deadline.
    Deadline = "DEADLINE", Failed, Outside;
    /// A signal ended the tick.
    Interrupted = "INTERRUPTED", Temporary, Outside;
    /// A panic, caught.
    Internal = "INTERNAL", Internal, Outside;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Code {
    /// The code with this text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_names_one_code() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
        }
    }
}
