//! The gateway's own source under shuttle, which runs tasks and threads in many orders and fails when one of them hangs.
//!
//! `src/eventlog/` and `src/session/requests.rs` are compiled here as they are, against stand-ins for what surrounds them: the
//! standard library's locks and tokio's tasks are shuttle's, and a session's owner has no more than what the race is
//! about. What depends on no order (the store in memory, the types, ACP) is the gateway's library.

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
        /// The models have few readers, and telling them is to take more than one step.
        pub(crate) const NOTIFY_BATCH: usize = 1;
        /// Of one session there are fewer, of another there may be more.
        pub(crate) const MAX_WRITER_NOTIFICATIONS: usize = 2;
    }
}

mod shutdown {
    use std::sync::PoisonError;

    use shuttle::future::JoinHandle;

    /// Here a panic fails the model, and with it every lock.
    pub(crate) fn lock_or_abort<G>(locked: Result<G, PoisonError<G>>) -> G {
        locked.unwrap_or_else(|_| panic!("a lock was held by what panicked"))
    }

    /// Tasks and threads of the models. Nobody stops them.
    #[derive(Debug, Clone, Default)]
    pub struct Shutdown;

    impl Shutdown {
        /// The log's upkeep (retention, a look at the disk) waits for a timer, and here there is none.
        #[expect(clippy::unused_self, reason = "as the gateway's own")]
        pub(crate) fn spawn<F: Future>(&self, task: F) {
            drop(task);
        }

        #[expect(clippy::unused_self, reason = "as the gateway's own")]
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
