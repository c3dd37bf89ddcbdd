//! Keys: made once, kept as hashes, ended within a second.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use acp_gateway::auth::limits::Limits;
use acp_gateway::auth::{CreateKeyError, KeyHash, Keys, NewKey, RevokeError};
use base::shutdown::Shutdown;
use base::types::{Clock, ClockLimits, Ids, PrincipalLimits, Scope, Tenant, Timestamp, UserId};
use events::api::KeyKind;
use log::store::{MemoryStore, RecordStore as _, Table};

#[derive(Debug)]
struct HandClock(AtomicI64);

impl HandClock {
    fn advance(&self, span: Duration) {
        self.0
            .fetch_add(i64::try_from(span.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }
}

const DAY: Duration = Duration::from_hours(24);

struct House {
    store: Arc<MemoryStore>,
    clock: Arc<HandClock>,
    ids: Ids,
}

impl House {
    fn new() -> Self {
        let clock = Arc::new(HandClock(AtomicI64::new(1_795_299_303_123)));
        // The steps of the clock are accepted at once.
        let ids = Ids::with_limits(
            clock.clone(),
            ClockLimits {
                clock_settle_timeout: Duration::ZERO,
                ..ClockLimits::default()
            },
        );
        Self {
            store: Arc::new(MemoryStore::new(ids.clone())),
            clock,
            ids,
        }
    }

    fn keys(&self) -> Keys {
        self.keys_with(&Limits::default())
    }

    fn keys_with(&self, limits: &Limits) -> Keys {
        Keys::open(
            self.store.clone(),
            self.ids.clone(),
            limits,
            PrincipalLimits::default(),
            None,
        )
        .unwrap()
    }
}

fn new_key(name: &str) -> NewKey<'_> {
    NewKey {
        name,
        user: UserId::new(&Tenant::default(), name),
        expires_at: None,
        scopes: [Scope::Read, Scope::Prompt].into_iter().collect(),
        member_names: Vec::new(),
        limits: Vec::new(),
    }
}

#[test]
fn key_is_shown_once_and_stored_as_a_hash() {
    let house = House::new();
    let keys = house.keys();
    let (text, key) = keys.create(&new_key("alice")).unwrap();
    assert_eq!(text.expose().len(), 5 + 43);
    assert!(text.expose().starts_with("acpg_"));
    let verified = keys.verify(text.expose()).unwrap();
    assert_eq!(
        (verified.principal.user.name(), &verified.key),
        ("alice", &key.id)
    );
    assert!(
        verified.principal.scopes.contains(Scope::Prompt)
            && !verified.principal.scopes.contains(Scope::Admin)
    );
    assert!(keys.verify("").is_none());
    assert!(keys.verify(&text.expose()[5..]).is_none());

    let secret = &text.expose()[5..];
    for (key, value) in house.store.scan(Table::Key, b"", None, 10).unwrap() {
        let record = format!(
            "{} {}",
            String::from_utf8_lossy(&key),
            String::from_utf8_lossy(&value)
        );
        assert!(!record.contains(secret), "{record}");
        assert!(!value.is_empty());
    }
    for shown in [format!("{:?}", keys.list()), format!("{key:?}")] {
        assert!(!shown.contains(secret), "{shown}");
    }
    // A gateway that starts again on the same store knows it.
    assert!(house.keys().verify(text.expose()).is_some());
}

#[test]
fn reserved_names_are_rejected() {
    let keys = House::new().keys();
    for name in ["", "a b", "a\n", "ü", &"x".repeat(65)] {
        assert!(
            matches!(keys.create(&new_key(name)), Err(CreateKeyError::Name)),
            "{name:?}"
        );
    }
    for name in ["owner", "admin"] {
        assert!(
            matches!(
                keys.create(&new_key(name)),
                Err(CreateKeyError::Reserved(_) | CreateKeyError::Owner)
            ),
            "{name:?}"
        );
    }
    let nothing = NewKey {
        scopes: std::iter::empty().collect(),
        ..new_key("alice")
    };
    assert!(matches!(
        keys.create(&nothing),
        Err(CreateKeyError::NoScope)
    ));
    assert_eq!(keys.list(), []);
}

#[test]
fn named_keys_are_bounded_and_link_keys_replace_the_oldest() {
    let house = House::new();
    let keys = house.keys_with(&Limits {
        max_named_keys: 2,
        max_link_keys: 2,
        ..Limits::default()
    });
    keys.create(&new_key("a")).unwrap();
    keys.create(&new_key("b")).unwrap();
    assert!(matches!(
        keys.create(&new_key("c")),
        Err(CreateKeyError::TooMany(2))
    ));
    let links: Vec<_> = (0..3)
        .map(|_| {
            house.clock.advance(Duration::from_secs(1));
            keys.create_link_key().unwrap()
        })
        .collect();
    let holds: Vec<_> = links
        .iter()
        .map(|link| keys.verify(link.expose()).is_some())
        .collect();
    assert_eq!(holds, [false, true, true]);
    assert_eq!(keys.list().len(), 4);
}

#[tokio::test]
async fn link_key_in_use_survives_any_number_of_crash_restarts() {
    let house = House::new();
    let gateway = house.keys();
    let shutdown = Shutdown::new();
    let following = shutdown.spawn(gateway.clone().run(shutdown.clone()));
    let link = gateway.create_start_link_key(false).unwrap();
    let asked = gateway.create_link_key().unwrap();
    assert!(gateway.verify(link.expose()).is_some());
    // The first use is durable long before the next regular write.
    let stored_use = || {
        let keys = house.keys().list();
        keys.iter().any(|key| key.last_used_at.is_some())
    };
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    while !stored_use() {
        assert!(
            tokio::time::Instant::now() < until,
            "the first use is not stored"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // A killed gateway writes nothing more.
    following.abort();
    for _ in 0..250 {
        house.clock.advance(Duration::from_secs(1));
        house.keys().create_start_link_key(false).unwrap();
    }
    let keys = house.keys();
    assert!(keys.verify(link.expose()).is_some(), "the link in use");
    assert!(
        keys.verify(asked.expose()).is_some(),
        "a link that a person asked for"
    );
    assert_eq!(keys.list().len(), 3, "and one unused link of a start");
}

#[test]
fn full_link_keys_evict_only_unused_ones() {
    let house = House::new();
    let limits = Limits {
        max_link_keys: 3,
        ..Limits::default()
    };
    let keys = house.keys_with(&limits);
    let create = || {
        house.clock.advance(Duration::from_secs(1));
        keys.create_link_key()
    };
    let used = create().unwrap();
    let unused = create().unwrap();
    assert!(keys.verify(used.expose()).is_some());
    let third = create().unwrap();
    let fourth = create().unwrap();
    assert!(
        keys.verify(unused.expose()).is_none(),
        "the oldest unused one"
    );
    for link in [&used, &third, &fourth] {
        assert!(keys.verify(link.expose()).is_some());
    }
    let error = create().err().expect("three links are in use");
    assert!(matches!(error, CreateKeyError::TooManyLinks(3)), "{error}");
    assert!(error.to_string().contains("key revoke"), "{error}");
    for start in [keys.create_start_link_key(false).err(), create().err()] {
        assert!(matches!(start, Some(CreateKeyError::TooManyLinks(3))));
    }
    // Keys of local programs have a bound of their own.
    for _ in 0..5 {
        house.clock.advance(Duration::from_secs(1));
        keys.create_attach_key().unwrap();
    }
    assert_eq!(keys.list().len(), 6);
    assert!(keys.verify(used.expose()).is_some());
}

#[test]
fn unused_link_key_expires() {
    let house = House::new();
    let keys = house.keys();
    let used = keys.create_link_key().unwrap();
    let unused = keys.create_link_key().unwrap();
    let (named, _) = keys.create(&new_key("alice")).unwrap();
    house.clock.advance(DAY * 29);
    let owner = keys.verify(used.expose()).unwrap();
    assert_eq!(owner.principal.user.name(), "owner");
    house.clock.advance(DAY * 2);
    assert!(keys.verify(unused.expose()).is_none());
    assert!(keys.verify(used.expose()).is_some());
    assert!(keys.verify(named.expose()).is_some());
    let kinds: Vec<_> = keys.list().iter().map(|key| key.kind).collect();
    assert_eq!(
        kinds.iter().filter(|kind| **kind == KeyKind::Link).count(),
        1
    );
    house.clock.advance(DAY * 31);
    assert!(!keys.is_valid(&owner));
    // The next start removes expired keys.
    assert_eq!(house.keys().list().len(), 1);
    assert_eq!(
        house.store.scan(Table::Key, b"", None, 10).unwrap().len(),
        1
    );
}

#[test]
fn revoke_accepts_an_id_or_a_name() {
    let keys = House::new().keys();
    let (one, first) = keys.create(&new_key("alice")).unwrap();
    let (two, _) = keys.create(&new_key("alice")).unwrap();
    let (three, _) = keys.create(&new_key("bob")).unwrap();
    assert_eq!(keys.revoke(first.id.as_str()).unwrap().len(), 1);
    assert!(keys.verify(one.expose()).is_none() && keys.verify(two.expose()).is_some());
    keys.create(&new_key("alice")).unwrap();
    assert_eq!(keys.revoke("alice").unwrap().len(), 2);
    assert!(keys.verify(two.expose()).is_none() && keys.verify(three.expose()).is_some());
    assert!(matches!(keys.revoke("alice"), Err(RevokeError::NotFound)));
}

#[test]
fn an_admin_key_is_in_memory_only() {
    let house = House::new();
    let text = "an operator's own key, of any form";
    let admin = Some(KeyHash::of(text));
    let keys = Keys::open(
        house.store.clone(),
        house.ids.clone(),
        &Limits::default(),
        PrincipalLimits::default(),
        admin,
    )
    .unwrap();
    let verified = keys.verify(text).unwrap();
    assert_eq!(verified.principal.user.name(), "owner");
    assert!(verified.principal.scopes.contains(Scope::Files) && keys.is_valid(&verified));
    assert_eq!(house.store.scan(Table::Key, b"", None, 10).unwrap(), []);
    assert!(house.keys().verify(text).is_none());
}

#[tokio::test]
async fn rotate_revokes_live_stream() {
    let house = House::new();
    let gateway = house.keys();
    let shutdown = Shutdown::new();
    shutdown.spawn(gateway.clone().run(shutdown.clone()));
    // The command line works on the same store with its own copy of the keys.
    let command_line = house.keys();
    let (text, _) = command_line.create(&new_key("alice")).unwrap();
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    while gateway.verify(text.expose()).is_none() {
        assert!(
            tokio::time::Instant::now() < until,
            "a new key was not seen"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let verified = gateway.verify(text.expose()).unwrap();
    let stream = tokio::time::timeout(Duration::from_millis(100), gateway.wait_ended(&verified));
    assert!(
        stream.await.is_err(),
        "the stream ended though its key holds"
    );
    let began = tokio::time::Instant::now();
    command_line.revoke("alice").unwrap();
    gateway.wait_ended(&verified).await;
    // The gateway reads the keys again every second. The other second is for a busy machine.
    assert!(
        began.elapsed() <= Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    assert!(gateway.verify(text.expose()).is_none());
    shutdown.start_drain();
    assert!(shutdown.wait_for_tasks(Duration::from_secs(30)).await);
}

#[tokio::test]
async fn the_last_use_is_written_and_never_brings_back_a_revoked_key() {
    let house = House::new();
    let gateway = house.keys();
    let (alice, _) = gateway.create(&new_key("alice")).unwrap();
    let (bob, _) = gateway.create(&new_key("bob")).unwrap();
    assert!(gateway.verify(alice.expose()).is_some() && gateway.verify(bob.expose()).is_some());
    house.keys().revoke("bob").unwrap();
    let shutdown = Shutdown::new();
    let following = shutdown.spawn(gateway.clone().run(shutdown.clone()));
    shutdown.start_drain();
    following.await.unwrap();
    let after: Vec<_> = house
        .keys()
        .list()
        .into_iter()
        .map(|key| (key.name.to_string(), key.last_used_at))
        .collect();
    assert_eq!(after, [("alice".to_owned(), Some(house.clock.now()))]);
}

#[tokio::test]
async fn networks_of_a_key_are_bounded_and_survive_a_restart() {
    let house = House::new();
    let gateway = house.keys();
    let (text, _) = gateway.create(&new_key("alice")).unwrap();
    let address = |last: u8| std::net::IpAddr::from([192, 0, 2, last]);
    let networks = gateway.verify(text.expose()).unwrap().networks;
    assert!((0..17).all(|last| networks.add(address(last))));
    assert!(!networks.add(address(16)), "it is known");
    assert!(networks.add(address(0)), "only the last 16 are known");
    let in_one_network = ["2001:db8::1", "2001:db8::2"].map(|text| text.parse().unwrap());
    assert_eq!(
        in_one_network.map(|client| networks.add(client)),
        [true, false]
    );
    let shutdown = Shutdown::new();
    let following = shutdown.spawn(gateway.clone().run(shutdown.clone()));
    shutdown.start_drain();
    following.await.unwrap();
    let networks = house.keys().verify(text.expose()).unwrap().networks;
    assert!(!networks.add(address(16)) && networks.add(address(1)));
}
