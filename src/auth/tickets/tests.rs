//! Tests of the validity of tickets, also after restarts.

use super::*;
use crate::auth::NewKey;
use crate::store::faulty::{FaultyStore, Outcome};
use crate::types::clock::SystemEntropy;
use crate::types::{Clock, Scope, Tenant};

/// A wall clock that follows the paused tokio clock.
#[derive(Debug)]
struct Wall(Instant);

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000).after(self.0.elapsed())
    }
}

struct Life {
    keys: Keys,
    tickets: Tickets,
}

struct World {
    store: Arc<FaultyStore>,
    ids: Ids,
}

const PATH: &str = "/v1/events";

impl World {
    fn new() -> Self {
        let ids = Ids::new(Arc::new(Wall(Instant::now())), Arc::new(SystemEntropy));
        Self { store: Arc::new(FaultyStore::new(Outcome::Take)), ids }
    }

    /// Opens the keys and tickets from the store, as at a start of the gateway.
    fn life(&self) -> Life {
        let limits = Limits::default();
        let store: Arc<dyn EventStore> = self.store.clone();
        let keys = Keys::open(Arc::clone(&store), self.ids.clone(), &limits, None).unwrap();
        let tickets = Tickets::open(store, self.ids.clone(), &limits, &keys).unwrap();
        Life { keys, tickets }
    }
}

impl Life {
    fn ticket(&self) -> String {
        let new = NewKey {
            name: "alice",
            tenant: Tenant::default(),
            scopes: [Scope::Read].into_iter().collect(),
            limits: Vec::new(),
        };
        let (key, _) = self.keys.create(&new).unwrap();
        let holder = self.keys.verify(key.expose()).unwrap();
        self.tickets.issue(&holder, vec![PATH.to_owned()]).unwrap().ticket
    }

    fn holds(&self, ticket: &str) -> bool {
        self.tickets.use_for(ticket, PATH).is_ok()
    }
}

const UNUSED: Duration = Duration::from_secs(59);
const AFTER: Duration = Duration::from_secs(599);

#[tokio::test(start_paused = true)]
async fn an_unused_ticket_ends_a_minute_after_it_was_given_whatever_restarts() {
    let world = World::new();
    let ticket = world.life().ticket();
    tokio::time::advance(UNUSED).await;
    let life = world.life();
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(!life.holds(&ticket));
    assert!(!world.life().holds(&ticket));
}

#[tokio::test(start_paused = true)]
async fn a_ticket_in_use_holds_ten_minutes_after_a_crash() {
    let world = World::new();
    let life = world.life();
    let ticket = life.ticket();
    let stream = life.tickets.use_for(&ticket, PATH).unwrap();
    life.tickets.flush().unwrap();
    for _ in 0..30 {
        tokio::time::advance(STAMP).await;
        life.tickets.flush().unwrap();
    }
    // A crash does not run the guard's destructor.
    std::mem::forget(stream);
    tokio::time::advance(AFTER).await;
    let life = world.life();
    assert_eq!(life.tickets.use_for(&ticket, "/v1/sessions").unwrap_err(), TicketError::OtherPath);
    assert!(life.holds(&ticket));
    tokio::time::advance(AFTER + STAMP + STAMP).await;
    assert!(!world.life().holds(&ticket));
}

#[tokio::test(start_paused = true)]
async fn a_ticket_ends_ten_minutes_after_its_last_stream() {
    let world = World::new();
    let life = world.life();
    let ticket = life.ticket();
    assert!(life.holds(&ticket));
    life.tickets.flush().unwrap();
    tokio::time::advance(AFTER).await;
    let next = world.life();
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(!next.holds(&ticket));
}

#[tokio::test(start_paused = true)]
async fn a_revoked_key_takes_its_tickets_with_it() {
    let world = World::new();
    let life = world.life();
    let ticket = life.ticket();
    life.keys.revoke("alice").unwrap();
    assert!(!world.life().holds(&ticket));
    assert_eq!(world.store.scan(Table::Ticket, b"", None, 9).unwrap(), [], "the ticket is deleted");
}

#[tokio::test(start_paused = true)]
async fn what_a_full_disk_refused_is_written_again_the_next_time() {
    let world = World::new();
    let life = world.life();
    let (ticket, ended) = (life.ticket(), life.ticket());
    let stream = life.tickets.use_for(&ticket, PATH).unwrap();
    world.store.set(Outcome::Full);
    life.tickets.flush().unwrap_err();
    tokio::time::advance(UNUSED + Duration::from_secs(2)).await;
    life.tickets.flush().unwrap_err();
    assert!(!life.holds(&ended));
    world.store.set(Outcome::Take);
    life.tickets.flush().unwrap();
    assert_eq!(
        world.store.scan(Table::Ticket, b"", None, 9).unwrap().len(),
        1,
        "expired tickets are deleted"
    );
    std::mem::forget(stream);
    tokio::time::advance(AFTER).await;
    assert!(world.life().holds(&ticket));
}

/// An instance with a limit of one ticket for each principal, a key, and a ticket of this key.
struct Single {
    world: World,
    life: Life,
    holder: Verified,
    first: String,
}

impl Single {
    fn new() -> Self {
        let world = World::new();
        let limits = Limits { tickets: 1, ..Limits::default() };
        let store: Arc<dyn EventStore> = world.store.clone();
        let keys = Keys::open(Arc::clone(&store), world.ids.clone(), &limits, None).unwrap();
        let tickets = Tickets::open(store, world.ids.clone(), &limits, &keys).unwrap();
        let life = Life { keys, tickets };
        let scopes = [Scope::Read].into_iter().collect();
        let (key, _) = life
            .keys
            .create(&NewKey { name: "alice", tenant: Tenant::default(), scopes, limits: Vec::new() })
            .unwrap();
        let holder = life.keys.verify(key.expose()).unwrap();
        let first = life.tickets.issue(&holder, vec![PATH.to_owned()]).unwrap().ticket;
        Self { world, life, holder, first }
    }

    fn issue(&self) -> String {
        self.life.tickets.issue(&self.holder, vec![PATH.to_owned()]).unwrap().ticket
    }

    /// Runs `work` on another thread, and returns when `work` has requested a commit from the store.
    fn beside<'scope>(
        &self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        work: impl FnOnce() + Send + 'scope,
    ) {
        let before = self.world.store.asked();
        scope.spawn(work);
        while self.world.store.asked() == before {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_ticket_that_is_used_while_it_is_given_up_goes_on() {
    let single = Single::new();
    single.world.store.set(Outcome::Hold);
    let stream = std::thread::scope(|scope| {
        single.beside(scope, || drop(single.issue()));
        let stream = single.life.tickets.use_for(&single.first, PATH).expect("the ticket is still valid");
        single.world.store.set(Outcome::Take);
        stream
    });
    assert!(single.life.holds(&single.first), "the ticket has an open stream");
    single.life.tickets.flush().unwrap();
    std::mem::forget(stream);
    assert!(single.world.life().holds(&single.first), "also after a crash");
}

#[test]
fn a_ticket_that_was_given_up_does_not_come_back_by_a_write_that_was_slow() {
    let single = Single::new();
    assert!(single.life.holds(&single.first));
    // The flush stores the use of the first ticket; meanwhile another ticket evicts it.
    single.world.store.next([Outcome::Slow(Duration::from_millis(300))]);
    std::thread::scope(|scope| {
        single.beside(scope, || single.life.tickets.flush().unwrap());
        drop(single.issue());
    });
    assert_eq!(single.world.store.scan(Table::Ticket, b"", None, 9).unwrap().len(), 1);
    assert!(!single.world.life().holds(&single.first));
}
