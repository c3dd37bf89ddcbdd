//! The crate `base` for source under shuttle: its types, and a `Shutdown` whose tasks and threads shuttle schedules.

pub mod types {
    pub use acp_gateway_base::types::*;
}

pub mod telemetry {
    pub use acp_gateway_base::telemetry::*;
}

pub mod shutdown {
    use std::sync::PoisonError;

    use shuttle::future::JoinHandle;

    /// In a model a panic fails the run, so a poisoned lock may panic too.
    pub fn lock_or_abort<G>(locked: Result<G, PoisonError<G>>) -> G {
        locked.unwrap_or_else(|_| panic!("shared lock poisoned by a panic in another task"))
    }

    /// Spawns tasks and threads of the models. They are never stopped.
    #[derive(Debug, Clone, Default)]
    pub struct Shutdown;

    impl Shutdown {
        /// Drops the task: retention and the disk monitor wait for timers, which the models do not have.
        pub fn spawn<F: Future>(&self, task: F) {
            drop(task);
        }

        pub fn spawn_blocking<F, T>(&self, work: F) -> JoinHandle<T>
        where
            F: FnOnce() -> T + Send + 'static,
            T: Send + 'static,
        {
            shuttle::future::spawn(async move { work() })
        }

        pub fn spawn_thread<F>(
            name: &str,
            work: F,
        ) -> std::io::Result<shuttle::thread::JoinHandle<()>>
        where
            F: FnOnce() + Send + 'static,
        {
            shuttle::thread::Builder::new()
                .name(name.to_owned())
                .spawn(work)
        }

        pub async fn drain_started(&self) {
            std::future::pending().await
        }
    }
}
