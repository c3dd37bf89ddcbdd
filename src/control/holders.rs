//! The keys that end with their connections.

use std::collections::HashMap;
use std::sync::Mutex;

use super::message::{Access, Reply, Secret};
use crate::auth::{KeyId, KeyStoreError, KeyText, Keys, RevokeError};
use crate::shutdown::lock_or_abort;

/// The key of a connection.
#[derive(Debug, Clone)]
pub(super) struct HeldKey {
    pub(super) id: KeyId,
    pub(super) text: Secret,
    pub(super) is_editor: bool,
}

/// The number of connections of each key. A key is revoked and presented again under the same lock: a connection never gets
/// a key that another one is about to revoke.
#[derive(Debug, Default)]
pub(super) struct Holders(Mutex<HashMap<KeyId, usize>>);

impl Holders {
    /// The key for a new connection. Blocks on the store.
    pub(super) fn hold(&self, keys: &Keys, access: Access) -> Result<Option<HeldKey>, Reply> {
        let mut holders = lock_or_abort(self.0.lock());
        let held = match access {
            Access::OwnKey => return Ok(None),
            Access::Editor { former } => {
                let valid = former.and_then(|former| Some((keys.attach_key(&former.0)?, former)));
                match valid {
                    Some((id, text)) => HeldKey {
                        id,
                        text,
                        is_editor: true,
                    },
                    None => created(keys.create_attach_key(), true)?,
                }
            }
            Access::SignIn => created(keys.create_sign_in_key(), false)?,
        };
        *holders.entry(held.id.clone()).or_default() += 1;
        Ok(Some(held))
    }

    /// Revokes the key of a connection that has ended, unless another connection has the same key. Blocks on the store.
    pub(super) fn release(&self, keys: &Keys, held: &HeldKey) -> Result<(), RevokeError> {
        let mut holders = lock_or_abort(self.0.lock());
        if let Some(count) = holders.get_mut(&held.id)
            && *count > 1
        {
            *count -= 1;
            return Ok(());
        }
        holders.remove(&held.id);
        keys.revoke(held.id.as_str()).map(drop)
    }
}

fn created(
    created: Result<(KeyText, KeyId), KeyStoreError>,
    is_editor: bool,
) -> Result<HeldKey, Reply> {
    let (text, id) = created.map_err(|error| Reply::failed(&error))?;
    Ok(HeldKey {
        id,
        text: Secret(text.expose().to_owned()),
        is_editor,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::store::{
        Batch, CommitError, MemoryStore, ReadError, Record, RecordStore, RunHeader, Table,
    };
    use crate::types::{Ids, Limits};

    /// A store that announces each deletion, and waits before it.
    #[derive(Debug)]
    struct SlowDeletes {
        store: MemoryStore,
        gate: Mutex<(SyncSender<()>, Receiver<()>)>,
    }

    impl RecordStore for SlowDeletes {
        fn commit(&self, batch: &Batch) -> Result<Vec<RunHeader>, CommitError> {
            if !batch.deletes.is_empty() {
                let gate = self.gate.lock().unwrap();
                gate.0.send(()).unwrap();
                gate.1.recv().unwrap();
            }
            self.store.commit(batch)
        }

        fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
            self.store.get(table, key)
        }

        fn scan(
            &self,
            table: Table,
            prefix: &[u8],
            after: Option<&[u8]>,
            limit: usize,
        ) -> Result<Vec<Record>, ReadError> {
            self.store.scan(table, prefix, after, limit)
        }
    }

    fn editor(former: Option<&Secret>) -> Access {
        Access::Editor {
            former: former.cloned(),
        }
    }

    /// A connection ends while the next one presents the same key.
    #[test]
    fn key_of_a_new_connection_is_valid_while_the_former_connection_ends() {
        let (begun, begins) = sync_channel(1);
        let (release, released) = sync_channel(1);
        let gate = Mutex::new((begun, released));
        let store = SlowDeletes {
            store: MemoryStore::new(Ids::system()),
            gate,
        };
        let keys = Keys::open(Arc::new(store), Ids::system(), &Limits::default(), None).unwrap();
        let holders = Holders::default();
        let first = holders.hold(&keys, editor(None)).unwrap().unwrap();
        thread::scope(|scope| {
            let ended = scope.spawn(|| holders.release(&keys, &first));
            begins.recv().unwrap();
            let next = scope.spawn(|| holders.hold(&keys, editor(Some(&first.text))));
            // A `hold` that does not wait returns in this time.
            thread::sleep(Duration::from_millis(200));
            release.send(()).unwrap();
            ended.join().unwrap().unwrap();
            let next = next.join().unwrap().unwrap().unwrap();
            assert_eq!(keys.attach_key(&next.text.0), Some(next.id));
        });
    }

    #[test]
    fn key_ends_with_its_last_connection() {
        let store = Arc::new(MemoryStore::new(Ids::system()));
        let keys = Keys::open(store, Ids::system(), &Limits::default(), None).unwrap();
        let holders = Holders::default();
        let first = holders.hold(&keys, editor(None)).unwrap().unwrap();
        let second = holders
            .hold(&keys, editor(Some(&first.text)))
            .unwrap()
            .unwrap();
        assert_eq!(first.text, second.text);
        holders.release(&keys, &first).unwrap();
        assert!(keys.attach_key(&first.text.0).is_some());
        holders.release(&keys, &second).unwrap();
        assert_eq!(keys.attach_key(&first.text.0), None);
        assert!(holders.hold(&keys, Access::OwnKey).unwrap().is_none());
    }
}
