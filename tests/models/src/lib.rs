//! The gateway's source under shuttle, which runs tasks and threads in many orders and fails on deadlocks.
//!
//! This crate compiles `src/eventlog/` and the race for a request (`src/session/agent_requests/open.rs` and
//! `src/session/actor/answers.rs`) unchanged, and replaces their environment. Locks of the standard library and tasks of tokio come from shuttle. The session's actor
//! contains only the code that the race needs. Code without concurrency (the types, ACP)
//! comes from the gateway's library.

extern crate model_std as std;

#[path = "../../../src/eventlog/mod.rs"]
pub mod eventlog;
pub mod follow;
pub mod session;

mod acp {
    pub(crate) use acp_gateway::acp::*;
}
mod api {
    pub(crate) use acp_gateway::api::*;
}
mod event {
    pub(crate) use acp_gateway::event::*;
}
mod jsonrpc {
    pub(crate) use acp_gateway::jsonrpc::*;
}
mod store {
    pub use acp_gateway::store::*;
}
mod types {
    pub(crate) use acp_gateway::types::*;

    pub(crate) mod limits {
        /// The models have few readers, and a pass must have several batches.
        pub(crate) const NOTIFY_BATCH: usize = 1;
    }
}

mod shutdown {
    use std::sync::PoisonError;

    use shuttle::future::JoinHandle;

    /// In a model a panic fails the run, so a poisoned lock may panic too.
    pub(crate) fn lock_or_abort<G>(locked: Result<G, PoisonError<G>>) -> G {
        locked.unwrap_or_else(|_| panic!("shared lock poisoned by a panic in another task"))
    }

    /// Spawns tasks and threads of the models. They are never stopped.
    #[derive(Debug, Clone, Default)]
    pub struct Shutdown;

    impl Shutdown {
        /// Drops the task: retention and the disk monitor wait for timers, which the models do not have.
        #[expect(clippy::unused_self, reason = "same signature as in the gateway")]
        pub(crate) fn spawn<F: Future>(&self, task: F) {
            drop(task);
        }

        #[expect(clippy::unused_self, reason = "same signature as in the gateway")]
        pub(crate) fn spawn_blocking<F, T>(&self, work: F) -> JoinHandle<T>
        where
            F: FnOnce() -> T + Send + 'static,
            T: Send + 'static,
        {
            shuttle::future::spawn(async move { work() })
        }

        pub(crate) fn spawn_thread<F>(
            name: &str,
            work: F,
        ) -> std::io::Result<shuttle::thread::JoinHandle<()>>
        where
            F: FnOnce() + Send + 'static,
        {
            shuttle::thread::Builder::new().name(name.to_owned()).spawn(work)
        }

        pub(crate) async fn drain_started(&self) {
            std::future::pending().await
        }
    }
}
