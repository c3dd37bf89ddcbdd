//! The latest summaries of changed sessions, for streams that follow a list of sessions.
//!
//! A commit that changes a session contains its summary. The writer publishes the summary here after the commit, if the
//! user that owns the session has a reader. A summary replaces the previous one of its session. Therefore a reader gets
//! the latest state of each session, however late it reads.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use serde_json::value::RawValue;

use base::shutdown::lock_or_abort;
use base::types::{SessionId, UserId};

use super::notify::{Notifier, Subscription, Watermark};
use super::shares::Shares;

/// The number of changed sessions that are kept for the readers of a user.
const MAX_CHANGES: usize = 1024;
/// The bytes of summaries that are kept for the readers of a user.
const MAX_BYTES: usize = 1 << 20;

/// The summary of a session in a commit. The bytes pass through unchanged.
#[derive(Debug, Clone)]
pub enum Summary {
    Listed(Arc<RawValue>),
    /// The session is erased.
    Gone,
}

impl Summary {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Listed(summary) => summary.get().len(),
            Self::Gone => 0,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Summaries(Mutex<HashMap<UserId, Weak<UserSummaries>>>);

/// The changed sessions of a user. The changes have numbers from 1.
#[derive(Debug)]
struct UserSummaries {
    last: Watermark,
    changes: Mutex<Changes>,
}

#[derive(Debug, Default)]
struct Changes {
    kept: BTreeMap<u64, (SessionId, Summary)>,
    /// The number of the kept change of each session.
    numbers: HashMap<SessionId, u64>,
    bytes: usize,
    last: u64,
    /// The number of the last change that was dropped and not replaced by a later one.
    dropped: u64,
}

impl Summaries {
    fn owners(&self) -> MutexGuard<'_, HashMap<UserId, Weak<UserSummaries>>> {
        lock_or_abort(self.0.lock())
    }

    /// A reader of the changes from now on.
    pub(super) fn reader(&self, owner: &UserId) -> SummaryReader {
        let mut owners = self.owners();
        owners.retain(|_, of| of.strong_count() > 0);
        let known = owners.get(owner).and_then(Weak::upgrade);
        let of = known.unwrap_or_else(|| {
            let new = Arc::new(UserSummaries {
                last: Watermark::new(0),
                changes: Mutex::default(),
            });
            owners.insert(owner.clone(), Arc::downgrade(&new));
            new
        });
        drop(owners);
        let mut subscription = of.last.subscribe();
        let cursor = subscription.observe();
        SummaryReader {
            of,
            subscription,
            cursor,
        }
    }

    /// Publishes a summary to the owner of a session and to the users with whom it is shared.
    pub(super) fn publish(
        &self,
        owner: &UserId,
        session: SessionId,
        summary: Summary,
        shares: &Shares,
    ) {
        if shares.contains(session) {
            for user in self.readers_with_access(owner, session, shares) {
                self.publish_to(&user, session, summary.clone());
            }
        }
        self.publish_to(owner, session, summary);
    }

    /// The users other than the owner that have a reader, and access to a session.
    pub(super) fn readers_with_access(
        &self,
        owner: &UserId,
        session: SessionId,
        shares: &Shares,
    ) -> HashSet<UserId> {
        let owners = self.owners();
        let others = owners.keys().filter(|user| *user != owner);
        let with_access = others.filter(|user| shares.access(session, user).is_some());
        with_access.cloned().collect()
    }

    pub(super) fn publish_to(&self, owner: &UserId, session: SessionId, summary: Summary) {
        let of = self.owners().get(owner).and_then(Weak::upgrade);
        if let Some(of) = of {
            let last = of.changes().push(session, summary);
            of.last.advance(last);
        }
    }
}

impl UserSummaries {
    fn changes(&self) -> MutexGuard<'_, Changes> {
        lock_or_abort(self.changes.lock())
    }
}

impl Changes {
    fn push(&mut self, session: SessionId, summary: Summary) -> u64 {
        self.last += 1;
        self.bytes += summary.bytes();
        if let Some(previous) = self.numbers.insert(session, self.last)
            && let Some((_, replaced)) = self.kept.remove(&previous)
        {
            self.bytes -= replaced.bytes();
        }
        self.kept.insert(self.last, (session, summary));
        while self.kept.len() > MAX_CHANGES || self.bytes > MAX_BYTES {
            let Some((number, (session, dropped))) = self.kept.pop_first() else {
                break;
            };
            self.bytes -= dropped.bytes();
            self.numbers.remove(&session);
            self.dropped = number;
        }
        self.last
    }
}

/// Reads the changes of the sessions of a user.
#[derive(Debug)]
pub struct SummaryReader {
    of: Arc<UserSummaries>,
    subscription: Subscription,
    /// The number of the last change that was read.
    cursor: u64,
}

/// Some changes, each of another session.
#[derive(Debug, Default)]
pub struct SummaryPage {
    /// Earlier changes were dropped before the reader got them.
    pub lost: bool,
    pub changes: Vec<(SessionId, Summary)>,
}

impl SummaryReader {
    /// Registers the reader with the notifier of its thread.
    pub fn subscribe_via(&mut self, notifier: &Arc<Notifier>) {
        let last = &self.of.last;
        self.subscription.subscribe_via(last, notifier, None);
    }

    /// The number of the last change. [`changed`](Self::changed) waits for a later one.
    pub fn observe(&mut self) -> u64 {
        self.subscription.observe()
    }

    /// Skips all changes until now.
    pub fn skip_to_end(&mut self) {
        self.cursor = self.observe();
    }

    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Waits for a change after the last observed one. Cancel-safe.
    pub async fn changed(&mut self) {
        self.subscription.changed().await;
    }

    /// The next changes up to the number `through`, of about `max_bytes`.
    pub fn read(&mut self, through: u64, max_bytes: usize) -> SummaryPage {
        let changes = self.of.changes();
        let mut page = SummaryPage {
            lost: changes.dropped > self.cursor,
            changes: Vec::new(),
        };
        let mut bytes = 0;
        for (number, (session, summary)) in changes.kept.range(self.cursor + 1..) {
            if *number > through {
                break;
            }
            if bytes > max_bytes {
                return page;
            }
            bytes += summary.bytes();
            page.changes.push((*session, summary.clone()));
            self.cursor = *number;
        }
        self.cursor = self.cursor.max(through).max(changes.dropped);
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::types::Ids;

    fn listed(text: &str) -> Summary {
        Summary::Listed(RawValue::from_string(format!("\"{text}\"")).unwrap().into())
    }

    fn text(summary: &Summary) -> Option<&str> {
        match summary {
            Summary::Listed(text) => Some(text.get().trim_matches('"')),
            Summary::Gone => None,
        }
    }

    fn texts(page: &SummaryPage) -> Vec<(SessionId, Option<&str>)> {
        page.changes
            .iter()
            .map(|(session, summary)| (*session, text(summary)))
            .collect()
    }

    fn read_all(reader: &mut SummaryReader) -> SummaryPage {
        let last = reader.observe();
        reader.read(last, usize::MAX)
    }

    #[test]
    fn a_reader_gets_the_latest_state_of_each_session_of_its_user() {
        let all = Summaries::default();
        let owner = UserId::owner();
        let ids = Ids::system();
        let [a, b] = [ids.session(), ids.session()];
        all.publish_to(&owner, a, listed("nobody reads"));
        let mut reader = all.reader(&owner);
        assert!(texts(&read_all(&mut reader)).is_empty());
        all.publish_to(&owner, a, listed("1"));
        all.publish_to(&owner, b, listed("2"));
        all.publish_to(
            &UserId::from_text("other"),
            ids.session(),
            listed("foreign"),
        );
        all.publish_to(&owner, a, listed("3"));
        let page = read_all(&mut reader);
        assert_eq!(
            (page.lost, texts(&page)),
            (false, vec![(b, Some("2")), (a, Some("3"))])
        );
        all.publish_to(&owner, b, Summary::Gone);
        assert_eq!(texts(&read_all(&mut reader)), [(b, None)]);
        assert!(texts(&read_all(&mut reader)).is_empty());
        // The summaries end with their last reader.
        drop(reader);
        assert_eq!(all.owners().get(&owner).map(Weak::strong_count), Some(0));
    }

    #[test]
    fn a_page_has_an_end_and_a_later_change_waits_for_the_next_round() {
        let all = Summaries::default();
        let owner = UserId::owner();
        let ids = Ids::system();
        let mut reader = all.reader(&owner);
        let [a, b] = [ids.session(), ids.session()];
        all.publish_to(&owner, a, listed("1"));
        all.publish_to(&owner, b, listed("2"));
        let round = reader.observe();
        assert_eq!(texts(&reader.read(round, 0)), [(a, Some("1"))]);
        all.publish_to(&owner, a, listed("3"));
        assert_eq!(texts(&reader.read(round, 0)), [(b, Some("2"))]);
        assert_eq!(reader.cursor(), round);
        assert_eq!(texts(&read_all(&mut reader)), [(a, Some("3"))]);
    }

    #[test]
    fn memory_is_bounded_and_a_late_reader_learns_of_the_loss_once() {
        let all = Summaries::default();
        let owner = UserId::owner();
        let ids = Ids::system();
        let mut late = all.reader(&owner);
        let mut early = all.reader(&owner);
        for _ in 0..MAX_CHANGES {
            all.publish_to(&owner, ids.session(), listed("small"));
        }
        assert_eq!(read_all(&mut early).changes.len(), MAX_CHANGES);
        all.publish_to(&owner, ids.session(), listed("small"));
        let page = read_all(&mut late);
        assert_eq!((page.lost, page.changes.len()), (true, MAX_CHANGES));
        assert!(!read_all(&mut late).lost);
        assert!(!read_all(&mut early).lost);
        let large = listed(&"x".repeat(MAX_BYTES / 4));
        for _ in 0..8 {
            all.publish_to(&owner, ids.session(), large.clone());
        }
        {
            let changes = late.of.changes();
            assert!(changes.bytes <= MAX_BYTES);
            assert_eq!(changes.kept.len(), changes.numbers.len());
        }
        assert!(read_all(&mut late).lost);
        // One session that changes often loses nothing.
        let session = ids.session();
        for _ in 0..2 * MAX_CHANGES {
            all.publish_to(&owner, session, listed("small"));
        }
        let page = read_all(&mut late);
        assert_eq!((page.lost, page.changes.len()), (false, 1));
    }
}
