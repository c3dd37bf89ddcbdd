//! The standard library for source under shuttle. At every lock and every atomic operation shuttle may switch
//! to another task.

pub use ::std::*;

pub mod sync {
    pub use ::std::sync::{LazyLock, OnceLock};
    pub use shuttle::sync::{
        Arc, Condvar, LockResult, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        RwLockWriteGuard, Weak,
    };
    pub mod atomic {
        pub use shuttle::sync::atomic::*;
    }
}
