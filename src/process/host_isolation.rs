//! The isolation and the control groups of this machine, prepared after the gateway accepts connections.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use tokio::task::JoinHandle;

use super::control_groups::ControlGroups;
use super::isolation::Sandbox;
use crate::shutdown::Shutdown;

/// How this machine isolates children. Cheap to clone.
///
/// The preparation takes about 15 ms, mostly waits of the kernel. It begins when the gateway accepts connections, and
/// only code that needs the result waits for it. The default value is not prepared.
#[derive(Debug, Clone, Default)]
pub struct HostIsolation(Arc<OnceLock<(Sandbox, ControlGroups)>>);

impl HostIsolation {
    pub fn new(sandbox: Sandbox, groups: ControlGroups) -> Self {
        Self(Arc::new(OnceLock::from((sandbox, groups))))
    }

    /// Begins the preparation on a blocking thread. The handle reports its end. If `prepare` panics, the result is
    /// `fallback` without control groups.
    pub fn prepare(
        &self,
        shutdown: &Shutdown,
        fallback: Sandbox,
        prepare: impl FnOnce() -> (Sandbox, ControlGroups) + Send + 'static,
    ) -> JoinHandle<()> {
        let result = self.clone();
        let work = move || {
            // The panic is in the log.
            let outcome = catch_unwind(AssertUnwindSafe(prepare));
            // This is the only call.
            drop(result.0.set(outcome.unwrap_or((fallback, ControlGroups::default()))));
        };
        shutdown.spawn_blocking(work)
    }

    /// The isolation of children. Blocks until the end of the preparation.
    pub fn sandbox(&self) -> &Sandbox {
        &self.0.wait().0
    }

    /// The control groups of children. Blocks until the end of the preparation.
    pub fn groups(&self) -> &ControlGroups {
        &self.0.wait().1
    }
}
