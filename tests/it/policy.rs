//! Admission: every foreign name, origin and key is rejected.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use acp_gateway::auth::limits::Limits;
use acp_gateway::auth::{Admission, AdmissionError, Keys, Policy, PolicyOptions, Tickets};
use base::types::{Ids, PrincipalLimits};
use events::api::PublicUrl;
use http::Request;
use http::request::Parts;
use log::audit::CountedEvents;
use log::store::MemoryStore;

struct Gate {
    policy: Policy,
    keys: Keys,
    tickets: Tickets,
    key: String,
}

const PEER: &str = "203.0.113.9:5000";

/// Of a principal. The default takes long.
const MAX_TICKETS: usize = 100;

fn gate(bound: &str, public: Option<&str>) -> Gate {
    let ids = Ids::system();
    let limits = Limits {
        max_failed_keys_per_minute: 2,
        max_tickets: MAX_TICKETS,
        ..Limits::default()
    };
    let store = Arc::new(MemoryStore::new(ids.clone()));
    let keys = Keys::open(
        store.clone(),
        ids.clone(),
        &limits,
        PrincipalLimits::default(),
        None,
    )
    .unwrap();
    let tickets = Tickets::open(store, ids.clone(), &limits, &keys).unwrap();
    let options = PolicyOptions {
        bound: bound.parse().unwrap(),
        public_url: public.and_then(|origin| PublicUrl::new(origin.to_owned(), "")),
        allowed_hosts: ["sidecar", "*.cluster.example", "[2001:db8::2]"]
            .map(|host| host.parse().unwrap())
            .into(),
        allowed_origins: vec!["https://app.example".to_owned()],
        frame_ancestors: Vec::new(),
        proxies: vec!["10.0.0.0/8".parse().unwrap()],
    };
    let key = keys.create_link_key().unwrap().expose().to_owned();
    let counted = CountedEvents::default();
    Gate {
        policy: Policy::new(
            options,
            keys.clone(),
            tickets.clone(),
            &limits,
            counted,
            ids,
        ),
        keys,
        tickets,
        key,
    }
}

fn request(uri: &str, headers: &[(&str, &str)]) -> Parts {
    let request = headers
        .iter()
        .fold(Request::get(uri), |request, (name, value)| {
            request.header(*name, *value)
        });
    request.body(()).unwrap().into_parts().0
}

impl Gate {
    fn admit(&self, parts: &Parts) -> Result<Admission, AdmissionError> {
        self.policy
            .admit(parts, PEER.parse::<SocketAddr>().unwrap())
    }

    /// With the key and additional headers.
    fn with_key(&self, uri: &str, headers: &[(&str, &str)]) -> Result<Admission, AdmissionError> {
        let bearer = format!("Bearer {}", self.key);
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend_from_slice(headers);
        self.admit(&request(uri, &all))
    }
}

#[test]
fn host_rebind() {
    let gate = gate("127.0.0.1:8080", Some("https://gateway.example"));
    let ours = [
        "localhost:8080",
        "LOCALHOST:8080",
        "127.0.0.1:8080",
        "[::1]:8080",
        "gateway.example",
        "gateway.example:443",
    ];
    for host in ours {
        assert!(
            gate.with_key("/v1/sessions", &[("host", host)]).is_ok(),
            "{host}"
        );
        assert!(
            gate.with_key(&format!("http://{host}/v1/sessions"), &[("host", host)])
                .is_ok(),
            "{host}"
        );
        assert!(
            gate.with_key(&format!("http://{host}/v1/sessions"), &[])
                .is_ok(),
            "{host}"
        );
    }
    let foreign = [
        "evil.example",
        "localhost",
        "127.0.0.1",
        "localhost:80",
        "localhost:8081",
        "localhost:08080",
        "localhost:",
        "localhost.evil.com:8080",
        "127.0.0.1.nip.io:8080",
        "localhost.:8080",
        "127.0.0.1.:8080",
        "gateway.example.",
        "gateway.example:8080",
        "gateway.example:80",
        "sub.gateway.example",
        "2130706433:8080",
        "127.1:8080",
        "0x7f.0.0.1:8080",
        "[::ffff:127.0.0.1]:8080",
        "[0:0:0:0:0:0:0:1]:8080",
        "0.0.0.0:8080",
        "",
        "user@localhost:8080",
        "localhost:8080@evil.example",
        "localhost:8080,evil.example",
        " localhost:8080 x",
        "localhost:8080/",
        "localhost:8080#",
    ];
    for host in foreign {
        for path in [
            "/",
            "/v1/sessions",
            "/livez",
            "/docs",
            "/openapi.json",
            "/assets/x.js",
            "/nowhere",
        ] {
            let refused = gate.with_key(path, &[("host", host)]).unwrap_err();
            assert_eq!(refused, AdmissionError::MisdirectedRequest, "{host} {path}");
        }
    }
    let two = gate.with_key(
        "/v1/sessions",
        &[("host", "localhost:8080"), ("host", "localhost:8080")],
    );
    assert_eq!(two.unwrap_err(), AdmissionError::InvalidHost);
    let none = gate.with_key("/v1/sessions", &[]);
    assert_eq!(none.unwrap_err(), AdmissionError::InvalidHost);
    for (target, host) in [
        ("evil.example", "localhost:8080"),
        ("localhost:8080", "evil.example"),
    ] {
        let mixed = gate.with_key(&format!("http://{target}/v1/sessions"), &[("host", host)]);
        assert_eq!(
            mixed.unwrap_err(),
            AdmissionError::MisdirectedRequest,
            "{target} {host}"
        );
    }
}

#[test]
fn allowed_hosts_are_names_with_every_port_and_no_origins() {
    let gate = gate("127.0.0.1:8080", Some("https://gateway.example"));
    for host in [
        "sidecar",
        "Sidecar:9000",
        "a.cluster.example:80",
        "[2001:db8::2]",
        "[2001:db8::2]:8080",
    ] {
        assert!(gate.with_key("/v1", &[("host", host)]).is_ok(), "{host}");
        let page = format!("http://{host}");
        let from_page = gate.with_key("/v1", &[("host", host), ("origin", &page)]);
        assert_eq!(from_page.unwrap_err(), AdmissionError::OriginForbidden);
    }
    for host in [
        "sidecar.",
        "sidecar.example",
        "sidecar:",
        "sidecar:80:80",
        "sidecar:8o",
        "user@sidecar",
        "cluster.example",
        "[2001:db8::3]:80",
    ] {
        let refused = gate.with_key("/v1", &[("host", host)]).unwrap_err();
        assert_eq!(refused, AdmissionError::MisdirectedRequest, "{host}");
    }
}

#[test]
fn a_bound_address_and_the_default_port_are_names() {
    let lan = gate("192.168.1.5:80", None);
    for host in ["192.168.1.5", "192.168.1.5:80", "localhost", "127.0.0.1:80"] {
        assert!(lan.with_key("/v1", &[("host", host)]).is_ok(), "{host}");
    }
    let everywhere = gate("0.0.0.0:8080", Some("http://[2001:db8::1]:9000"));
    for (host, ours) in [
        ("0.0.0.0:8080", false),
        ("localhost:8080", true),
        ("[2001:db8::1]:9000", true),
    ] {
        assert_eq!(
            everywhere.with_key("/v1", &[("host", host)]).is_ok(),
            ours,
            "{host}"
        );
    }
}

#[test]
fn only_listed_origins_pass() {
    let gate = gate("127.0.0.1:8080", Some("https://gateway.example"));
    let ask = |path: &str, headers: &[(&str, &str)]| {
        let mut all = vec![("host", "localhost:8080")];
        all.extend_from_slice(headers);
        gate.with_key(path, &all)
    };
    let cross = |origin: &str| {
        gate.policy
            .allowed_cross_origin(&request("/v1", &[("origin", origin)]).headers)
            .map(str::to_owned)
    };
    for origin in [
        "http://localhost:8080",
        "http://127.0.0.1:8080",
        "http://[::1]:8080",
        "https://gateway.example",
    ] {
        assert!(ask("/v1", &[("origin", origin)]).is_ok(), "{origin}");
        assert_eq!(cross(origin), None, "{origin}");
    }
    let allowed = ask(
        "/v1",
        &[
            ("origin", "https://app.example"),
            ("sec-fetch-site", "cross-site"),
        ],
    )
    .unwrap();
    assert!(!allowed.preflight);
    assert_eq!(
        cross("https://app.example").as_deref(),
        Some("https://app.example")
    );
    for origin in [
        "null",
        "",
        "http://localhost",
        "http://localhost:3000",
        "https://localhost:8080",
        "http://gateway.example",
        "https://evil.example",
        "https://app.example.evil.example",
        "https://app.example:8443",
        "https://APP.example",
        "https://app.example/",
        "https://app.example, https://app.example",
        "http://localhost:8080 x",
    ] {
        for path in ["/v1", "/", "/livez"] {
            assert_eq!(
                ask(path, &[("origin", origin)]).unwrap_err(),
                AdmissionError::OriginForbidden,
                "{origin}"
            );
        }
    }
    let twice = [
        ("origin", "http://localhost:8080"),
        ("origin", "http://localhost:8080"),
    ];
    assert_eq!(
        ask("/v1", &twice).unwrap_err(),
        AdmissionError::OriginForbidden
    );
    for (site, passes) in [
        ("same-origin", true),
        ("none", true),
        ("same-site", false),
        ("cross-site", false),
        ("x", false),
    ] {
        assert_eq!(
            ask("/v1", &[("sec-fetch-site", site)]).is_ok(),
            passes,
            "{site}"
        );
        // A link on another site may lead to the page.
        assert!(ask("/", &[("sec-fetch-site", site)]).is_ok(), "{site}");
    }
    // The policy can only restrict.
    let lies = [
        ("origin", "https://evil.example"),
        ("sec-fetch-site", "same-origin"),
    ];
    assert_eq!(
        ask("/v1", &lies).unwrap_err(),
        AdmissionError::OriginForbidden
    );
}

#[test]
fn a_preflight_needs_no_key_but_a_listed_origin() {
    let gate = gate("127.0.0.1:8080", None);
    let ask = |origin: &str, method: &[(&str, &str)]| {
        let request = Request::options("/v1/sessions")
            .header("host", "localhost:8080")
            .header("origin", origin);
        let request = method.iter().fold(request, |request, (name, value)| {
            request.header(*name, *value)
        });
        gate.admit(&request.body(()).unwrap().into_parts().0)
    };
    let method = [("access-control-request-method", "POST")];
    let admitted = ask("https://app.example", &method).unwrap();
    assert!(admitted.preflight && admitted.credential.is_none());
    assert_eq!(
        ask("https://app.example", &[]).unwrap_err(),
        AdmissionError::MissingKey
    );
    assert_eq!(
        ask("https://evil.example", &method).unwrap_err(),
        AdmissionError::OriginForbidden
    );
    assert_eq!(
        ask("http://localhost:8080", &method).unwrap_err(),
        AdmissionError::MissingKey
    );
}

#[test]
fn private_routes_require_a_valid_key() {
    let gate = gate("127.0.0.1:8080", None);
    let host = ("host", "localhost:8080");
    for path in [
        "/",
        "/assets/index.js",
        "/favicon.svg",
        "/manifest.webmanifest",
        "/notices.js",
        "/livez",
        "/readyz",
        "/openapi.json",
        "/docs",
        "/docs/problems",
    ] {
        let admitted = gate.admit(&request(path, &[host])).unwrap();
        assert!(admitted.principal().is_none(), "{path}");
    }
    for path in [
        "/v1",
        "/v1/sessions",
        "/metrics",
        "/acp",
        "/docsx",
        "/livez/",
        "/assets",
        "//",
        "/%76%31",
    ] {
        assert_eq!(
            gate.admit(&request(path, &[host])).unwrap_err(),
            AdmissionError::MissingKey,
            "{path}"
        );
    }
    let key = &gate.key;
    for right in [
        format!("Bearer {key}"),
        format!("bearer {key}"),
        format!("BEARER  {key}"),
    ] {
        let admitted = gate
            .admit(&request("/v1", &[host, ("authorization", &right)]))
            .unwrap();
        assert_eq!(
            admitted.principal().unwrap().user.name(),
            "owner",
            "{right}"
        );
    }
    let wrong = [
        key.clone(),
        format!("Basic {key}"),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        format!("Bearer {key}x"),
        format!("Bearer {}", &key[..key.len() - 1]),
        format!("Bearer {}", key.to_uppercase()),
        format!("Bearer\t{key}"),
    ];
    for (index, wrong) in wrong.iter().enumerate() {
        let refused = gate
            .admit(&request("/v1", &[host, ("authorization", wrong)]))
            .unwrap_err();
        let expected = if index < 2 {
            refused == AdmissionError::InvalidKey
        } else {
            matches!(refused, AdmissionError::TooManyInvalidKeys { .. })
        };
        assert!(expected, "{wrong} {refused:?}");
    }
    // Failed attempts from an address do not block a valid key from the same address.
    assert!(gate.with_key("/v1", &[host]).is_ok());
    let right = format!("Bearer {key}");
    let twice = request(
        "/v1",
        &[host, ("authorization", &right), ("authorization", &right)],
    );
    assert!(gate.admit(&twice).is_err());
}

#[test]
fn bruteforce_throttled() {
    let gate = gate("127.0.0.1:8080", None);
    let guess = |peer: &str, forwarded: &str| {
        let headers = [
            ("host", "localhost:8080"),
            ("authorization", "Bearer guess"),
            ("x-forwarded-for", forwarded),
        ];
        gate.policy
            .admit(&request("/v1", &headers), peer.parse().unwrap())
            .unwrap_err()
    };
    assert_eq!(
        guess("10.0.0.1:1", "198.51.100.1"),
        AdmissionError::InvalidKey
    );
    assert_eq!(
        guess("10.0.0.1:2", "198.51.100.1"),
        AdmissionError::InvalidKey
    );
    let AdmissionError::TooManyInvalidKeys { retry_after } = guess("10.0.0.1:3", "198.51.100.1")
    else {
        panic!("the third guess in a minute passed");
    };
    assert!(
        retry_after > Duration::from_secs(50) && retry_after <= Duration::from_mins(1),
        "{retry_after:?}"
    );
    assert_eq!(
        guess("10.0.0.1:4", "198.51.100.2"),
        AdmissionError::InvalidKey
    );
}

#[test]
fn only_a_proxy_of_ours_is_believed_about_the_client() {
    let gate = gate("127.0.0.1:8080", None);
    let client = |peer: &str, forwarded: &[&str]| {
        let mut headers = vec![("host", "localhost:8080")];
        headers.extend(forwarded.iter().map(|value| ("x-forwarded-for", *value)));
        let admitted = gate
            .policy
            .admit(&request("/livez", &headers), peer.parse().unwrap())
            .unwrap();
        admitted.client.to_string()
    };
    assert_eq!(client("203.0.113.9:1", &["198.51.100.1"]), "203.0.113.9");
    assert_eq!(client("10.0.0.1:1", &["198.51.100.1"]), "198.51.100.1");
    assert_eq!(
        client("[::ffff:10.0.0.1]:1", &["198.51.100.1"]),
        "198.51.100.1"
    );
    assert_eq!(
        client("10.0.0.1:1", &["6.6.6.6, 198.51.100.1, 10.0.0.2"]),
        "198.51.100.1"
    );
    assert_eq!(
        client("10.0.0.1:1", &["6.6.6.6", "198.51.100.1"]),
        "198.51.100.1"
    );
    assert_eq!(
        client("10.0.0.1:1", &["198.51.100.1, nonsense"]),
        "10.0.0.1"
    );
    assert_eq!(client("10.0.0.1:1", &[]), "10.0.0.1");
    assert_eq!(client("10.0.0.1:1", &["10.0.0.3"]), "10.0.0.3");
}

#[test]
fn ticket_opens_only_its_paths() {
    let gate = gate("127.0.0.1:8080", None);
    let host = ("host", "localhost:8080");
    let holder = gate.keys.verify(&gate.key).unwrap();
    let ticket = gate
        .tickets
        .issue(&holder, vec!["/v1/events".to_owned()])
        .unwrap()
        .ticket;
    let open = || {
        gate.admit(&request(
            &format!("/v1/events?after=tail&ticket={ticket}"),
            &[host],
        ))
    };

    let stream = open().unwrap();
    assert_eq!(stream.principal().unwrap().user, holder.principal.user);
    assert!(stream.credential.as_ref().unwrap().ticket.is_some());
    let other_path = request(&format!("/v1/sessions?ticket={ticket}"), &[host]);
    assert_eq!(
        gate.admit(&other_path).unwrap_err(),
        AdmissionError::InvalidTicket
    );
    let twice = request(
        &format!("/v1/events?ticket={ticket}&ticket={ticket}"),
        &[host],
    );
    assert_eq!(gate.admit(&twice).unwrap_err(), AdmissionError::MissingKey);
    let post =
        Request::post(format!("/v1/events?ticket={ticket}")).header("host", "localhost:8080");
    assert_eq!(
        gate.admit(&post.body(()).unwrap().into_parts().0)
            .unwrap_err(),
        AdmissionError::MissingKey
    );
    // A wrong key beside it is a wrong key.
    let beside = request(
        &format!("/v1/events?ticket={ticket}"),
        &[host, ("authorization", "Bearer x")],
    );
    assert_eq!(gate.admit(&beside).unwrap_err(), AdmissionError::InvalidKey);
    assert!(open().is_ok());
    gate.keys.revoke("link").unwrap();
    assert_eq!(open().unwrap_err(), AdmissionError::InvalidTicket);
}

#[test]
fn ticket_is_valid_during_its_stream_and_a_grace_period() {
    let gate = gate("127.0.0.1:8080", None);
    let holder = gate.keys.verify(&gate.key).unwrap();
    let path = "/v1/events";
    let short = Duration::from_millis(20);
    let long = Duration::from_hours(1);
    let tickets = |unused, after| {
        let limits = Limits {
            ticket_unused_timeout: unused,
            ticket_idle_timeout: after,
            ..Limits::default()
        };
        let store = Arc::new(MemoryStore::new(Ids::system()));
        let tickets = Tickets::open(store, Ids::system(), &limits, &gate.keys).unwrap();
        let ticket = tickets
            .issue(&holder, vec![path.to_owned()])
            .unwrap()
            .ticket;
        move || tickets.open_stream(&ticket, path)
    };
    let pass = || std::thread::sleep(short * 2);

    let unused = tickets(short, long);
    pass();
    assert!(unused().is_none());

    let used = tickets(long, short);
    let stream = used().unwrap();
    pass();
    let second = used().unwrap();
    drop(stream);
    pass();
    assert!(used().is_some());
    drop(second);
    pass();
    assert!(used().is_none());

    let reconnecting = tickets(long, long);
    drop(reconnecting().unwrap());
    pass();
    assert!(reconnecting().is_some());
}

#[test]
fn tickets_of_one_principal_are_bounded() {
    let gate = gate("127.0.0.1:8080", None);
    let holder = gate.keys.verify(&gate.key).unwrap();
    let path = "/v1/events";
    let used = gate
        .tickets
        .issue(&holder, vec![path.to_owned()])
        .unwrap()
        .ticket;
    let stream = gate.tickets.open_stream(&used, path).unwrap();
    let unused = gate
        .tickets
        .issue(&holder, vec![path.to_owned()])
        .unwrap()
        .ticket;
    for _ in 0..MAX_TICKETS {
        gate.tickets.issue(&holder, vec![path.to_owned()]).unwrap();
    }
    assert!(gate.tickets.open_stream(&unused, path).is_none());
    assert!(gate.tickets.open_stream(&used, path).is_some());
    drop(stream);
}
