//! How long tickets hold, through restarts.

use super::*;
use crate::auth::NewKey;
use crate::store::faulty::{FaultyStore, Outcome};
use crate::types::clock::SystemEntropy;
use crate::types::{Clock, Scope, Tenant};

/// Wall time that goes on with the timers' time.
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

    /// A gateway that has started on the store.
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
        let new =
            NewKey { name: "alice", tenant: Tenant::default(), scopes: [Scope::Read].into_iter().collect() };
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
    // What ends by a crash tells the store nothing.
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
    assert_eq!(world.store.scan(Table::Ticket, b"", None, 9).unwrap(), [], "and nothing of it is left");
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
    assert_eq!(world.store.scan(Table::Ticket, b"", None, 9).unwrap().len(), 1, "what is over is gone");
    std::mem::forget(stream);
    tokio::time::advance(AFTER).await;
    assert!(world.life().holds(&ticket));
}
