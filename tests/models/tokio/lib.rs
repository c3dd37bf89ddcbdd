//! tokio for source that runs under shuttle. Its channels and semaphores need no runtime and are its own; its tasks are
//! shuttle's.

pub use ::tokio::{select, sync, time};

pub mod task {
    pub use shuttle::future::{JoinHandle, yield_now};

    /// A place where another task may come first.
    pub async fn consume_budget() {
        yield_now().await;
    }
}
