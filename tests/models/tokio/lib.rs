//! tokio for source under shuttle. Channels and semaphores need no runtime and come from tokio. Tasks come
//! from shuttle.

pub use ::tokio::{select, sync, time};

pub mod task {
    pub use shuttle::future::{JoinHandle, yield_now};

    /// A point at which shuttle may switch to another task.
    pub async fn consume_budget() {
        yield_now().await;
    }
}
