use futures_util::FutureExt;

use super::*;

impl ConnectionPermit {
    pub(in crate::server) fn unlimited() -> Self {
        let connections = Connections::new(
            &Arc::new(Limits::default()),
            Vec::new(),
            ConnectionUse::default(),
        );
        connections
            .acquire(IpAddr::from([127, 0, 0, 1]), Instant::now())
            .unwrap()
    }
}

fn connections(limits: Limits) -> Connections {
    Connections::new(
        &Arc::new(limits),
        vec!["10.0.0.0/8".parse().unwrap()],
        ConnectionUse::default(),
    )
}

/// Opens a connection when the grace period of all others has ended.
fn open(connections: &Connections, address: &str) -> Option<ConnectionPermit> {
    let now = Instant::now();
    let permit = connections
        .acquire(address.parse().unwrap(), now + GRACE)
        .ok()?;
    permit.read_permission(now);
    Some(permit)
}

fn open_authenticated(connections: &Connections, address: &str) -> Option<ConnectionPermit> {
    open(connections, address).inspect(ConnectionPermit::authenticated)
}

fn is_evicted(permit: &ConnectionPermit) -> bool {
    permit.evicted().now_or_never().is_some()
}

#[test]
fn authenticated_connections_are_limited_in_total_and_per_address_except_proxies() {
    let limits = Limits {
        max_connections: 4,
        max_connections_per_address: 2,
        ..Limits::default()
    };
    let connections = connections(limits);
    let take = |address: &str| open_authenticated(&connections, address);
    let first = take("192.0.2.1").unwrap();
    let second = take("::ffff:192.0.2.1").unwrap();
    assert!(
        take("192.0.2.1").is_none(),
        "an IPv4 address and its IPv6-mapped form are the same address"
    );
    let proxied: Vec<_> = (0..2).map(|_| take("10.0.0.1").unwrap()).collect();
    assert!(take("192.0.2.2").is_none(), "the total limit is reached");
    drop(first);
    let third = take("192.0.2.1").unwrap();
    assert_eq!(connections.0.lock().open, 4);
    assert!(
        [&second, &third]
            .into_iter()
            .chain(&proxied)
            .all(|permit| !is_evicted(permit))
    );
    drop((second, third, proxied));
    let counts = connections.0.lock();
    assert!(counts.open == 0 && counts.by_address.is_empty() && counts.unauthenticated.is_empty());
}

#[test]
fn new_connection_evicts_the_oldest_unauthenticated_connection_of_its_address() {
    let limits = Limits {
        max_unauthenticated_connections_per_address: 2,
        ..Limits::default()
    };
    let connections = connections(limits);
    let other = open(&connections, "192.0.2.2").unwrap();
    let keyed = open_authenticated(&connections, "192.0.2.1").unwrap();
    let mut held: Vec<_> = (0..5)
        .map(|_| open(&connections, "192.0.2.1").unwrap())
        .collect();
    assert_eq!(
        held.iter().map(is_evicted).collect::<Vec<_>>(),
        [true, true, true, false, false]
    );
    assert!(!is_evicted(&other) && !is_evicted(&keyed));
    // An evicted connection cannot become authenticated, and it is not counted twice.
    held[0].authenticated();
    assert!(!held[0].is_authenticated());
    held.drain(..3);
    assert_eq!(connections.0.lock().open, 4);
    held[0].authenticated();
    let next = open(&connections, "192.0.2.1").unwrap();
    assert!(
        !is_evicted(&held[1]),
        "an authenticated connection does not use the share"
    );
    drop((next, held));
}

#[test]
fn connection_has_a_grace_period_after_its_first_read() {
    let limits = Limits {
        max_unauthenticated_connections_per_address: 1,
        ..Limits::default()
    };
    let connections = connections(limits);
    let address = IpAddr::from([192, 0, 2, 1]);
    let now = Instant::now();
    let acquire = |at| connections.acquire(address, at).map(|_| ());
    let first = connections.acquire(address, now).unwrap();
    assert_eq!(
        acquire(now + 2 * GRACE),
        Err(AcquireError::Busy),
        "its request may have arrived"
    );
    first.read_permission(now + GRACE);
    first.read_permission(now + 2 * GRACE);
    assert_eq!(
        acquire(now + 2 * GRACE - Duration::from_millis(1)),
        Err(AcquireError::Busy)
    );
    assert!(!is_evicted(&first));
    assert_eq!(acquire(now + 2 * GRACE), Ok(()));
    assert!(is_evicted(&first));
}

#[test]
fn ipv6_network_has_one_share() {
    let limits = Limits {
        max_unauthenticated_connections_per_address: 1,
        ..Limits::default()
    };
    let connections = connections(limits);
    let first = open(&connections, "2001:db8::1").unwrap();
    let other = open(&connections, "2001:db8:0:1::1").unwrap();
    let _second = open(&connections, "2001:db8::2").unwrap();
    assert!(is_evicted(&first) && !is_evicted(&other));
}

#[test]
fn full_gateway_evicts_only_unauthenticated_connections() {
    let connections = connections(Limits {
        max_connections: 16,
        ..Limits::default()
    });
    let keyed: Vec<_> = (0..14)
        .map(|_| open_authenticated(&connections, "192.0.2.1").unwrap())
        .collect();
    let one = open(&connections, "192.0.2.2").unwrap();
    let two = open(&connections, "10.0.0.1").unwrap();
    let three = open_authenticated(&connections, "192.0.2.3").unwrap();
    assert!(is_evicted(&one) && !is_evicted(&two));
    let four = open_authenticated(&connections, "192.0.2.3").unwrap();
    assert!(is_evicted(&two), "connections of a proxy are evicted too");
    assert!(
        open(&connections, "192.0.2.4").is_none(),
        "all connections are authenticated"
    );
    assert!(
        keyed
            .iter()
            .chain([&three, &four])
            .all(|permit| !is_evicted(permit))
    );
}

#[test]
fn memory_of_unauthenticated_requests_is_bounded() {
    let limit = 4 * REQUEST_BYTES;
    let limits = Limits {
        max_unauthenticated_request_bytes: limit,
        ..Limits::default()
    };
    let connections = connections(limits);
    let take = || open(&connections, "192.0.2.1").unwrap();
    let silent = take();
    let oldest = take();
    let keyed = take();
    let one = take();
    let two = take();
    for connection in [&oldest, &keyed, &one, &two] {
        connection.bytes_received(10);
        connection.request_started();
    }
    assert!(
        is_evicted(&oldest),
        "four requests and their bytes exceed the limit"
    );
    assert_eq!(connections.0.lock().request_bytes, 3 * (REQUEST_BYTES + 10));
    keyed.authenticated();
    keyed.bytes_received(limit);
    assert_eq!(connections.0.lock().request_bytes, 2 * (REQUEST_BYTES + 10));
    one.request_ended();
    one.bytes_received(limit - REQUEST_BYTES - 10);
    assert!(
        [&silent, &keyed, &one, &two]
            .into_iter()
            .all(|permit| !is_evicted(permit))
    );
    two.bytes_received(1);
    assert!(
        is_evicted(&one) && !is_evicted(&silent),
        "a connection without memory is not evicted"
    );
    drop(two);
    let three = take();
    three.bytes_received(limit + 1);
    assert!(is_evicted(&three), "one connection alone");
    assert_eq!(connections.0.lock().request_bytes, 0);
    drop((one, three));
    let four = take();
    let small = take();
    four.bytes_received(UNPACED_BYTES + 1);
    small.bytes_received(UNPACED_BYTES);
    let permissions =
        [&oldest, &four, &small, &keyed].map(|permit| permit.read_permission(Instant::now()));
    let [full, paced] = [ReadPermission::Full, ReadPermission::Paced];
    assert_eq!(permissions, [ReadPermission::Evicted, paced, full, full]);
}

#[test]
fn memory_of_evicted_connections_counts_until_they_are_dropped() {
    let limit = 4 * REQUEST_BYTES;
    let limits = Limits {
        max_unauthenticated_request_bytes: limit,
        ..Limits::default()
    };
    let connections = connections(limits);
    let take = || open(&connections, "192.0.2.1").unwrap();
    let evicted = take();
    let large = take();
    let small = take();
    let keyed = take();
    keyed.authenticated();
    evicted.bytes_received(limit);
    small.bytes_received(UNDELAYED_BYTES);
    large.bytes_received(UNPACED_BYTES + 1);
    assert!(is_evicted(&evicted));
    let permissions =
        || [&large, &small, &keyed].map(|permit| permit.read_permission(Instant::now()));
    let [full, paced] = [ReadPermission::Full, ReadPermission::Paced];
    assert_eq!(permissions(), [ReadPermission::AfterEvictions, full, full]);
    let clone = evicted.clone();
    drop(evicted);
    assert_eq!(
        permissions(),
        [ReadPermission::AfterEvictions, full, full],
        "a request has the permit"
    );
    drop(clone);
    assert_eq!(permissions(), [paced, full, full]);
    assert_eq!(connections.0.lock().evicted.bytes, 0);
}

#[test]
fn one_address_uses_at_most_a_quarter_of_the_unauthenticated_connections() {
    // The shares shrink with `max_connections`: 20 unauthenticated connections, 5 per address.
    let connections = connections(Limits {
        max_connections: 40,
        ..Limits::default()
    });
    let neighbour = open(&connections, "192.0.2.2").unwrap();
    let flood: Vec<_> = (0..100)
        .map(|_| open(&connections, "192.0.2.1").unwrap())
        .collect();
    assert!(!is_evicted(&neighbour));
    assert_eq!(flood.iter().filter(|permit| !is_evicted(permit)).count(), 5);
    let proxied: Vec<_> = (0..14)
        .map(|_| open(&connections, "10.0.0.1").unwrap())
        .collect();
    assert!(
        proxied.iter().all(|permit| !is_evicted(permit)),
        "a proxy has no share of its own"
    );
    assert!(flood[99].is_crowded() && neighbour.is_crowded());
    neighbour.authenticated();
    assert!(!neighbour.is_crowded(), "20 of 40 connections are open");
}
