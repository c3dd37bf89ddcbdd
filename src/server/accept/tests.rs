use super::*;

fn acceptor(limits: Limits, proxies: Vec<Network>) -> Acceptor {
    Acceptor {
        limits: Arc::new(limits),
        stream_limits: Arc::default(),
        proxies,
        require_proxy: false,
        stream_workers: StreamWorkers::start().unwrap(),
        connection_use: crate::server::ConnectionUse::default(),
        shutdown: Shutdown::new(),
    }
}

#[test]
fn only_proxies_and_loopback_are_accepted_behind_a_proxy() {
    let open = acceptor(Limits::default(), vec!["10.0.0.0/8".parse().unwrap()]);
    let behind = Acceptor {
        require_proxy: true,
        ..open.clone()
    };
    for (peer, served) in [
        ("10.1.2.3", true),
        ("::ffff:10.1.2.3", true),
        ("127.0.0.1", true),
        ("::1", true),
        ("::ffff:127.0.0.1", true),
        ("192.0.2.1", false),
        ("2001:db8::1", false),
    ] {
        let peer = peer.parse().unwrap();
        assert_eq!(
            (behind.accepts_peer(peer), open.accepts_peer(peer)),
            (served, true),
            "{peer}"
        );
    }
}

#[test]
fn aborted_connections_do_not_end_the_accept_queue() {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    let mut queue = [
        Ok(1),
        Err(ConnectionAborted),
        Ok(2),
        Err(Interrupted),
        Ok(3),
        Err(WouldBlock),
        Ok(4),
    ]
    .map(|accepted| accepted.map_err(io::Error::from))
    .into_iter();
    let accepted: Vec<_> = drain_accept_queue(|| {
        queue
            .next()
            .expect("the iterator stops at the end of the queue")
    })
    .collect();
    assert_eq!(accepted, [1, 2, 3]);
    assert_eq!(
        drain_accept_queue(|| Err::<(), _>(ConnectionAborted.into())).count(),
        0,
        "the iterator is bounded"
    );
}
