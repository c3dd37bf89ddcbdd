//! The memory of bodies and WebSocket messages that clients send.
//!
//! A request charges bytes as they arrive. One user may hold at most a quarter of the memory, and therefore cannot
//! exclude all others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use base::shutdown::lock_or_abort;
use base::telemetry::metrics;
use base::types::{Principal, UserId};

const PRINCIPALS: usize = 4;

/// A charge exceeded the memory for bodies. The text fits into the close frame of a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, strum::IntoStaticStr)]
pub(crate) enum BodyMemoryFull {
    #[strum(
        to_string = "the open bodies of this key exceed a quarter of `server.max_body_memory_bytes`"
    )]
    Principal,
    #[strum(to_string = "the open bodies of all clients exceed `server.max_body_memory_bytes`")]
    Total,
}

impl std::error::Error for BodyMemoryFull {}

/// The memory of all bodies. A cheap handle.
#[derive(Clone)]
pub(crate) struct BodyMemory(Arc<Table>);

struct Table {
    max: usize,
    used: Mutex<Used>,
}

#[derive(Default)]
struct Used {
    total: usize,
    by_principal: HashMap<UserId, usize>,
}

impl BodyMemory {
    pub(crate) fn new(max: usize) -> Self {
        let used = Mutex::default();
        Self(Arc::new(Table { max, used }))
    }

    fn max_of_principal(&self) -> usize {
        self.0.max / PRINCIPALS
    }

    fn add(&self, principal: Option<&UserId>, bytes: usize) -> Result<(), BodyMemoryFull> {
        let mut used = lock_or_abort(self.0.used.lock());
        let held = principal.map_or(0, |key| used.by_principal.get(key).copied().unwrap_or(0));
        if held + bytes > self.max_of_principal() {
            return Err(BodyMemoryFull::Principal);
        }
        if used.total + bytes > self.0.max {
            return Err(BodyMemoryFull::Total);
        }
        used.total += bytes;
        if let Some(key) = principal {
            used.by_principal.insert(key.clone(), held + bytes);
        }
        Ok(())
    }

    fn release(&self, principal: Option<&UserId>, bytes: usize) {
        let mut used = lock_or_abort(self.0.used.lock());
        used.total -= bytes;
        let Some(key) = principal else { return };
        let held = used.by_principal.get(key).copied().unwrap_or(0);
        if held > bytes {
            used.by_principal.insert(key.clone(), held - bytes);
        } else {
            used.by_principal.remove(key);
        }
    }
}

/// The bytes that one request or WebSocket holds. Dropping it releases them.
pub(crate) struct BodyCharge {
    memory: BodyMemory,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// Set when the request is admitted, before any byte of its body is read.
    principal: Option<UserId>,
    bytes: usize,
    exceeded: Option<BodyMemoryFull>,
}

impl BodyCharge {
    pub(crate) fn new(memory: BodyMemory) -> Self {
        let held = Mutex::default();
        Self { memory, held }
    }

    pub(super) fn set_principal(&self, principal: &Principal) {
        lock_or_abort(self.held.lock()).principal = Some(principal.user.clone());
    }

    pub(super) fn has_principal(&self) -> bool {
        lock_or_abort(self.held.lock()).principal.is_some()
    }

    pub(crate) fn max(&self) -> usize {
        self.memory.max_of_principal()
    }

    /// Charges bytes. After an error, the request must not keep more bytes.
    pub(crate) fn add(&self, bytes: usize) -> Result<(), BodyMemoryFull> {
        let mut held = lock_or_abort(self.held.lock());
        let added = self.memory.add(held.principal.as_ref(), bytes);
        match &added {
            Ok(()) => held.bytes += bytes,
            Err(full) => {
                metrics().rejections("body_memory", 1);
                held.exceeded = Some(*full);
            }
        }
        added
    }

    pub(crate) fn release(&self) {
        self.release_part(usize::MAX);
    }

    pub(super) fn release_part(&self, bytes: usize) {
        let mut held = lock_or_abort(self.held.lock());
        let released = bytes.min(held.bytes);
        if released > 0 {
            held.bytes -= released;
            self.memory.release(held.principal.as_ref(), released);
        }
    }

    pub(super) fn exceeded(&self) -> Option<BodyMemoryFull> {
        lock_or_abort(self.held.lock()).exceeded
    }
}

impl Drop for BodyCharge {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::types::{GrantedFolders, Scopes, Tenant, UserId};

    fn charge(memory: &BodyMemory, id: &str) -> BodyCharge {
        let charge = BodyCharge::new(memory.clone());
        charge.set_principal(&Principal {
            user: UserId::new(&Tenant::default(), id),
            is_local: false,
            scopes: Scopes::default(),
            folders: GrantedFolders::default(),
        });
        charge
    }

    #[test]
    fn principal_holds_at_most_a_quarter_and_drops_release_it() {
        let memory = BodyMemory::new(400);
        let one = charge(&memory, "a");
        let two = charge(&memory, "a");
        one.add(60).unwrap();
        two.add(40).unwrap();
        assert_eq!(two.add(1), Err(BodyMemoryFull::Principal));
        assert_eq!(two.exceeded(), Some(BodyMemoryFull::Principal));
        drop(one);
        two.add(60).unwrap();
        two.release();
        let others: Vec<_> = ["a", "b", "c", "d"].map(|id| charge(&memory, id)).into();
        for other in &others {
            other.add(100).unwrap();
        }
        assert_eq!(charge(&memory, "e").add(1), Err(BodyMemoryFull::Total));
        drop(others);
        assert!(lock_or_abort(memory.0.used.lock()).by_principal.is_empty());
        assert_eq!(lock_or_abort(memory.0.used.lock()).total, 0);
    }
}
