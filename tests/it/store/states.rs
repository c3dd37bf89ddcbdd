//! Possible contents of a disk after a stop of its machine: all synced writes, and any part of the later writes.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::disk::{Call, Kind};
use crate::support::Random;

/// The part of the writes after the last sync of a file that reached the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Left {
    /// As when only the process dies.
    All,
    Nothing,
    /// The first of them.
    First,
    /// Any of them, in no order.
    Some,
    /// The first of them, and of the last of these only a part; the rest of it is old, zeros or garbage.
    Torn,
}

pub(crate) const LEFT: [Left; 5] = [
    Left::All,
    Left::Nothing,
    Left::First,
    Left::Some,
    Left::Torn,
];

/// The unit that disks write atomically.
const SECTOR: usize = 512;

/// Files by name, as they may be when the machine stops right after the first calls.
pub(crate) fn files(
    calls: &[Call],
    folder: &str,
    left: Left,
    random: &mut Random,
) -> BTreeMap<String, Vec<u8>> {
    let history = History::of(calls, folder);
    let mut files = BTreeMap::new();
    for (name, file) in history.names(left, random) {
        // The first process that opens the store rebuilds the index of the write-ahead log, whatever its content is.
        if !name.ends_with("-shm") && name != super::crash::MARKS {
            files.insert(name, history.content(calls, file, left, random));
        }
    }
    files
}

/// The calls on each file, independent of renames, and the synced ones among them.
#[derive(Debug, Default)]
struct History {
    /// Changes of names in order: the call, and the name that is gone or the one that leads to a file.
    names: Vec<(usize, Name)>,
    names_synced: usize,
    writes: Vec<Vec<usize>>,
    synced: Vec<usize>,
}

#[derive(Debug)]
enum Name {
    Made(String, usize),
    Gone(String),
    Moved(String, String),
}

impl History {
    fn of(calls: &[Call], folder: &str) -> Self {
        let mut history = Self::default();
        let mut live: HashMap<String, usize> = HashMap::new();
        let mut syncs: HashMap<&str, VecDeque<usize>> = HashMap::new();
        for (index, call) in calls.iter().enumerate() {
            let name = call.name.clone();
            match &call.kind {
                Kind::Create => {
                    live.insert(name.clone(), history.writes.len());
                    history
                        .names
                        .push((index, Name::Made(name, history.writes.len())));
                    history.writes.push(Vec::new());
                    history.synced.push(0);
                }
                Kind::Unlink => {
                    live.remove(&name);
                    history.names.push((index, Name::Gone(name)));
                }
                Kind::Rename { to } => {
                    let file = live.remove(&name).expect("it was made before");
                    live.insert(to.clone(), file);
                    history.names.push((index, Name::Moved(name, to.clone())));
                }
                Kind::Write { .. } | Kind::Truncate { .. } => {
                    history.writes[live[&name]].push(index);
                }
                Kind::SyncBegins => syncs.entry(&call.name).or_default().push_back(index),
                Kind::Synced => {
                    let queue = syncs.get_mut(call.name.as_str());
                    // When two are under way at once it is the earlier: it covers less.
                    let began = queue
                        .and_then(VecDeque::pop_front)
                        .expect("a sync begins before it ends");
                    match live.get(&name) {
                        Some(file) => history.synced[*file] = began,
                        None if name == folder => history.names_synced = began,
                        None => {}
                    }
                }
                Kind::Failed => {}
            }
        }
        history
    }

    /// A file system keeps changes of a folder in their order.
    fn names(&self, left: Left, random: &mut Random) -> BTreeMap<String, usize> {
        let synced = self
            .names
            .iter()
            .filter(|(index, _)| *index < self.names_synced)
            .count();
        let later = (self.names.len() - synced) as u64;
        let kept = match left {
            Left::All => later,
            Left::Nothing => 0,
            Left::First | Left::Some | Left::Torn => random.below(later + 1),
        };
        let mut names = BTreeMap::new();
        for (_, change) in &self.names[..synced + usize::try_from(kept).expect("small")] {
            match change {
                Name::Made(name, file) => drop(names.insert(name.clone(), *file)),
                Name::Gone(name) => drop(names.remove(name)),
                Name::Moved(from, to) => {
                    let file = names.remove(from).expect("it was made before");
                    names.insert(to.clone(), file);
                }
            }
        }
        names
    }

    fn content(&self, calls: &[Call], file: usize, left: Left, random: &mut Random) -> Vec<u8> {
        let (sure, later): (Vec<usize>, Vec<usize>) = self.writes[file]
            .iter()
            .partition(|index| **index < self.synced[file]);
        let count = later.len() as u64;
        let kept: Vec<usize> = match left {
            Left::All => later,
            Left::Nothing => Vec::new(),
            Left::Some => later.into_iter().filter(|_| random.below(2) == 0).collect(),
            Left::First | Left::Torn => {
                let kept = usize::try_from(random.below(count + 1)).expect("small");
                later.into_iter().take(kept).collect()
            }
        };
        let torn = if left == Left::Torn {
            kept.last().copied()
        } else {
            None
        };
        let mut content = Vec::new();
        for index in sure.into_iter().chain(kept) {
            match &calls[index].kind {
                Kind::Write { at, bytes } if torn == Some(index) => {
                    tear(&mut content, *at, bytes, random);
                }
                Kind::Write { at, bytes } => put(&mut content, *at, bytes),
                Kind::Truncate { size } => content.resize(*size, 0),
                other => panic!("no write: {other:?}"),
            }
        }
        content
    }
}

fn put(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if content.len() < at + bytes.len() {
        content.resize(at + bytes.len(), 0);
    }
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

/// A write of which only the first sectors, or the first half, reached the disk.
fn tear(content: &mut Vec<u8>, at: usize, bytes: &[u8], random: &mut Random) {
    let sectors = (bytes.len() / SECTOR) as u64;
    let came = match random.below(3) {
        0 => bytes.len() / 2,
        _ => usize::try_from(random.below(sectors.max(1))).expect("small") * SECTOR,
    };
    put(content, at, &bytes[..came]);
    let lost = bytes.len() - came;
    match random.below(3) {
        0 => {}
        1 => put(content, at + came, &vec![0; lost]),
        _ => {
            let garbage: Vec<u8> = (0..lost)
                .map(|_| u8::try_from(random.below(256)).expect("a byte"))
                .collect();
            put(content, at + came, &garbage);
        }
    }
}
