//! Tests of the validity of tickets, also after restarts.

use super::*;
use crate::auth::NewKey;
use base::types::{Clock, PrincipalLimits, Scope, UserId};
use log::store::faulty::{FaultyStore, Outcome};

/// A wall clock that follows the paused tokio clock.
#[derive(Debug)]
struct TimerClock(Instant);

impl Clock for TimerClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000).after(self.0.elapsed())
    }
}

struct Instance {
    keys: Keys,
    tickets: Tickets,
}

struct Fixture {
    store: Arc<FaultyStore>,
    ids: Ids,
}

const PATH: &str = "/v1/events";

impl Fixture {
    fn new() -> Self {
        let ids = Ids::new(Arc::new(TimerClock(Instant::now())));
        Self {
            store: Arc::new(FaultyStore::new(Outcome::Commit)),
            ids,
        }
    }

    /// Opens the keys and tickets from the store, as at a start of the gateway.
    fn start(&self) -> Instance {
        let limits = Limits::default();
        let store: Arc<dyn RecordStore> = self.store.clone();
        let keys = Keys::open(
            Arc::clone(&store),
            self.ids.clone(),
            &limits,
            PrincipalLimits::default(),
            None,
        )
        .unwrap();
        let tickets = Tickets::open(store, self.ids.clone(), &limits, &keys).unwrap();
        Instance { keys, tickets }
    }
}

impl Instance {
    fn issue_ticket(&self) -> String {
        let new = NewKey {
            name: "alice",
            user: UserId::from_text("default/alice"),
            expires_at: None,
            scopes: [Scope::Read].into_iter().collect(),
            member_names: Vec::new(),
            limits: Vec::new(),
        };
        let (key, _) = self.keys.create(&new).unwrap();
        let holder = self.keys.verify(key.expose()).unwrap();
        self.tickets
            .issue(&holder, vec![PATH.to_owned()])
            .unwrap()
            .ticket
    }

    fn is_valid(&self, ticket: &str) -> bool {
        self.tickets.open_stream(ticket, PATH).is_some()
    }
}

const ALMOST_UNUSED_TTL: Duration = Duration::from_secs(59);
const ALMOST_RECONNECT_TTL: Duration = Duration::from_secs(599);

#[tokio::test(start_paused = true)]
async fn unused_ticket_expires_after_a_minute_despite_restart() {
    let fixture = Fixture::new();
    let ticket = fixture.start().issue_ticket();
    tokio::time::advance(ALMOST_UNUSED_TTL).await;
    let instance = fixture.start();
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(!instance.is_valid(&ticket));
    assert!(!fixture.start().is_valid(&ticket));
}

#[tokio::test(start_paused = true)]
async fn used_ticket_is_valid_for_ten_minutes_after_crash() {
    let fixture = Fixture::new();
    let instance = fixture.start();
    let ticket = instance.issue_ticket();
    let stream = instance.tickets.open_stream(&ticket, PATH).unwrap();
    instance.tickets.flush().unwrap();
    for _ in 0..30 {
        tokio::time::advance(REFRESH_INTERVAL).await;
        instance.tickets.flush().unwrap();
    }
    // A crash does not run the guard's destructor.
    std::mem::forget(stream);
    tokio::time::advance(ALMOST_RECONNECT_TTL).await;
    let instance = fixture.start();
    let wrong_path = instance.tickets.open_stream(&ticket, "/v1/sessions");
    assert!(wrong_path.is_none());
    assert!(instance.is_valid(&ticket));
    tokio::time::advance(ALMOST_RECONNECT_TTL + REFRESH_INTERVAL + REFRESH_INTERVAL).await;
    assert!(!fixture.start().is_valid(&ticket));
}

#[tokio::test(start_paused = true)]
async fn ticket_expires_ten_minutes_after_last_stream() {
    let fixture = Fixture::new();
    let instance = fixture.start();
    let ticket = instance.issue_ticket();
    assert!(instance.is_valid(&ticket));
    instance.tickets.flush().unwrap();
    tokio::time::advance(ALMOST_RECONNECT_TTL).await;
    let next = fixture.start();
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(!next.is_valid(&ticket));
}

#[tokio::test(start_paused = true)]
async fn revoking_a_key_revokes_its_tickets() {
    let fixture = Fixture::new();
    let instance = fixture.start();
    let ticket = instance.issue_ticket();
    instance.keys.revoke("alice").unwrap();
    assert!(!fixture.start().is_valid(&ticket));
    assert_eq!(
        fixture.store.scan(Table::Ticket, b"", None, 9).unwrap(),
        [],
        "the ticket is deleted"
    );
}

#[tokio::test(start_paused = true)]
async fn flush_retries_after_full_disk() {
    let fixture = Fixture::new();
    let instance = fixture.start();
    let ticket = instance.issue_ticket();
    let ended = instance.issue_ticket();
    let stream = instance.tickets.open_stream(&ticket, PATH).unwrap();
    fixture.store.set(Outcome::Full);
    instance.tickets.flush().unwrap_err();
    tokio::time::advance(ALMOST_UNUSED_TTL + Duration::from_secs(2)).await;
    instance.tickets.flush().unwrap_err();
    assert!(!instance.is_valid(&ended));
    fixture.store.set(Outcome::Commit);
    instance.tickets.flush().unwrap();
    assert_eq!(
        fixture
            .store
            .scan(Table::Ticket, b"", None, 9)
            .unwrap()
            .len(),
        1,
        "expired tickets are deleted"
    );
    std::mem::forget(stream);
    tokio::time::advance(ALMOST_RECONNECT_TTL).await;
    assert!(fixture.start().is_valid(&ticket));
}

/// An instance with a limit of one ticket for each user, a key, and a ticket of this key.
struct OneTicketFixture {
    fixture: Fixture,
    instance: Instance,
    holder: Verified,
    first: String,
}

impl OneTicketFixture {
    fn new() -> Self {
        let fixture = Fixture::new();
        let limits = Limits {
            max_tickets: 1,
            ..Limits::default()
        };
        let store: Arc<dyn RecordStore> = fixture.store.clone();
        let keys = Keys::open(
            Arc::clone(&store),
            fixture.ids.clone(),
            &limits,
            PrincipalLimits::default(),
            None,
        )
        .unwrap();
        let tickets = Tickets::open(store, fixture.ids.clone(), &limits, &keys).unwrap();
        let instance = Instance { keys, tickets };
        let scopes = [Scope::Read].into_iter().collect();
        let (key, _) = instance
            .keys
            .create(&NewKey {
                name: "alice",
                user: UserId::from_text("default/alice"),
                expires_at: None,
                scopes,
                member_names: Vec::new(),
                limits: Vec::new(),
            })
            .unwrap();
        let holder = instance.keys.verify(key.expose()).unwrap();
        let first = instance
            .tickets
            .issue(&holder, vec![PATH.to_owned()])
            .unwrap()
            .ticket;
        Self {
            fixture,
            instance,
            holder,
            first,
        }
    }

    fn issue(&self) -> String {
        self.instance
            .tickets
            .issue(&self.holder, vec![PATH.to_owned()])
            .unwrap()
            .ticket
    }

    /// Runs `work` on another thread, and returns when `work` has requested a commit from the store.
    fn run_until_commit<'scope>(
        &self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        work: impl FnOnce() + Send + 'scope,
    ) {
        let before = self.fixture.store.attempts();
        scope.spawn(work);
        while self.fixture.store.attempts() == before {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn ticket_used_during_eviction_stays_valid() {
    let single = OneTicketFixture::new();
    single.fixture.store.set(Outcome::Block);
    let stream = std::thread::scope(|scope| {
        single.run_until_commit(scope, || drop(single.issue()));
        let stream = single
            .instance
            .tickets
            .open_stream(&single.first, PATH)
            .expect("the ticket is still valid");
        single.fixture.store.set(Outcome::Commit);
        stream
    });
    assert!(
        single.instance.is_valid(&single.first),
        "the ticket has an open stream"
    );
    single.instance.tickets.flush().unwrap();
    std::mem::forget(stream);
    assert!(
        single.fixture.start().is_valid(&single.first),
        "also after a crash"
    );
}

#[test]
fn slow_flush_does_not_restore_evicted_ticket() {
    let single = OneTicketFixture::new();
    assert!(single.instance.is_valid(&single.first));
    // The flush stores the use of the first ticket; meanwhile another ticket evicts it.
    single
        .fixture
        .store
        .next([Outcome::Slow(Duration::from_millis(300))]);
    std::thread::scope(|scope| {
        single.run_until_commit(scope, || single.instance.tickets.flush().unwrap());
        drop(single.issue());
    });
    assert_eq!(
        single
            .fixture
            .store
            .scan(Table::Ticket, b"", None, 9)
            .unwrap()
            .len(),
        1
    );
    assert!(!single.fixture.start().is_valid(&single.first));
}
