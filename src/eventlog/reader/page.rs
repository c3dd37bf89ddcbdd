//! A page that a reader reads from the store.

use tokio::task::JoinHandle;

use crate::store::{Page, ReadError, Run};

use super::item::Item;
use crate::event::ResetReason;

/// A read of the store in progress.
pub(super) type PendingPage = JoinHandle<Result<Page, ReadError>>;

/// The effect of a page on its reader.
#[derive(Debug)]
pub(super) enum Accepted {
    Item(Item),
    Continue,
    Reset(ResetReason),
}

/// Concatenates consecutive runs, so that a replay uses large writes. A result has at most `max_bytes`,
/// unless a single event is larger. The limit bounds the memory that a slow reader holds.
pub(super) fn coalesce(runs: Vec<Run>, max_bytes: usize) -> Vec<Run> {
    let mut joined = Vec::new();
    let mut page: Vec<Run> = Vec::new();
    let mut bytes = 0;
    for run in runs {
        if page
            .last()
            .or(joined.last())
            .is_some_and(|last| last.last_seq + 1 != run.first_seq)
        {
            break;
        }
        let run = run.truncate_to(max_bytes);
        if bytes + run.frames.len() > max_bytes {
            joined.extend(concat(std::mem::take(&mut page)));
            bytes = 0;
        }
        bytes += run.frames.len();
        page.push(run);
    }
    joined.extend(concat(page));
    joined
}

/// Concatenates consecutive runs into one.
fn concat(mut runs: Vec<Run>) -> Option<Run> {
    let last = runs.pop()?;
    let Some(first) = runs.first() else {
        return Some(last);
    };
    let first_seq = first.first_seq;
    let bytes = runs.iter().chain([&last]).map(|run| run.frames.len()).sum();
    let mut frames = Vec::with_capacity(bytes);
    runs.iter()
        .chain([&last])
        .for_each(|run| frames.extend_from_slice(&run.frames));
    Some(Run {
        first_seq,
        frames: frames.into(),
        ..last
    })
}
