//! The isolation and the control groups of this machine, prepared after the gateway accepts connections.
//!
//! Only code that needs the result waits for it, such as the start of a process. Idle processes start after the
//! preparation.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use tokio::task::JoinHandle;

use super::control_groups::ControlGroups;
use super::isolation::Sandbox;
use crate::shutdown::Shutdown;

type Prepare = Box<dyn FnOnce() -> (Sandbox, ControlGroups) + Send>;

/// How this machine isolates children. Cheap to clone.
///
/// The preparation takes about 15 ms, mostly waits of the kernel. It begins when the gateway accepts connections, or at
/// the first use, for example by a queued prompt that a restart restores.
#[derive(Clone)]
pub struct HostIsolation(Arc<LazyLock<(Sandbox, ControlGroups), Prepare>>);

impl HostIsolation {
    pub fn new(sandbox: Sandbox, groups: ControlGroups) -> Self {
        Self::with_preparation(Sandbox::disabled(), move || (sandbox, groups))
    }

    /// An isolation that `prepare` determines. If it panics, the result is `fallback` without control groups.
    pub fn with_preparation(
        fallback: Sandbox,
        prepare: impl FnOnce() -> (Sandbox, ControlGroups) + Send + 'static,
    ) -> Self {
        let prepare: Prepare = Box::new(move || {
            // The panic is in the log.
            catch_unwind(AssertUnwindSafe(prepare)).unwrap_or((fallback, ControlGroups::default()))
        });
        Self(Arc::new(LazyLock::new(prepare)))
    }

    /// Begins the preparation on a blocking thread. The handle reports its end.
    pub fn prepare(&self, shutdown: &Shutdown) -> JoinHandle<()> {
        let isolation = self.clone();
        shutdown.spawn_blocking(move || {
            LazyLock::force(&isolation.0);
        })
    }

    /// The isolation of children. Blocks until the end of the preparation.
    pub fn sandbox(&self) -> &Sandbox {
        &self.0.0
    }

    /// The control groups of children. Blocks until the end of the preparation.
    pub fn groups(&self) -> &ControlGroups {
        &self.0.1
    }
}

impl fmt::Debug for HostIsolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostIsolation")
            .field(&LazyLock::get(&self.0))
            .finish()
    }
}
