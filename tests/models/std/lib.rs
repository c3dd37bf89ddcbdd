//! The standard library for source that runs under shuttle: every lock and every atomic is a place where another task
//! may come first.

pub use ::std::*;

pub mod sync {
    pub use ::std::sync::{LazyLock, OnceLock};
    pub use shuttle::sync::{
        Arc, Condvar, LockResult, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak,
    };
    pub mod atomic {
        pub use shuttle::sync::atomic::*;
    }
}
