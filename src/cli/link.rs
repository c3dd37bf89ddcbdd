//! A link: the URL of the gateway for a browser, with a key in its fragment. `link` prints one.
//!
//! The store has only hashes, so no key can be printed twice. Each link has a new key: without the scope `admin`, and with an
//! end if it is not used.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::output::Failure;
use super::source::{self, local_config};
use super::{lock, output};
use crate::auth::KeyText;
use crate::config::{Config, Flags};
use events::api::PublicUrl;

pub(super) fn link(url: &str, key: &KeyText) -> String {
    format!("{url}/#key={}", key.expose())
}

/// The URL of the page in links: the public URL if the operator has set one, because the reader of a link may be on another
/// machine.
pub(super) fn page_url(bound: SocketAddr, public_url: Option<&PublicUrl>) -> String {
    public_url.map_or_else(|| browser_url(bound, None), PublicUrl::to_string)
}

pub(super) fn browser_url(bound: SocketAddr, public_url: Option<&PublicUrl>) -> String {
    match (bound.ip(), public_url) {
        (ip, Some(url)) if !ip.is_loopback() => url.to_string(),
        _ => format!("http://{}", connect_address(bound)),
    }
}

/// The address to connect to: loopback if the gateway listens on all addresses.
pub(super) fn connect_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

pub(super) fn run(flags: &Flags) -> Result<(), Failure> {
    let config = local_config(flags)?;
    lock::check_owner(&config.data)?;
    let (keys, lock) = source::open_or_create_keys(&config)?;
    let is_running = lock.is_none();
    let url = configured_page_url(&config, is_running)?;
    let key = keys.create_link_key()?;
    if is_running {
        source::wait_for_reload(&config);
    } else {
        let note =
            "acp-gateway: no gateway uses this data folder; the link works after the next start\n";
        // The link is also useful without the note.
        let _ = io::stderr().write_all(note.as_bytes());
    }
    Ok(output::write_line(&link(&url, &key))?)
}

pub(super) fn configured_page_url(config: &Config, is_running: bool) -> Result<String, Failure> {
    if is_running {
        return Ok(lock::published_url(&config.data)?);
    }
    let address = config.listen.address;
    if address.port() == 0 && config.public_url.is_none() {
        return Err(
            "the next start selects its port: start the gateway first, or set --listen ADDR".into(),
        );
    }
    Ok(page_url(address, config.public_url.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browser_url_is_reachable() {
        let link = |bound: &str, public: Option<&str>| {
            let url = public.map(|origin| PublicUrl::new(origin.to_owned(), "/g/").unwrap());
            browser_url(bound.parse().unwrap(), url.as_ref())
        };
        assert_eq!(link("127.0.0.1:8080", None), "http://127.0.0.1:8080");
        assert_eq!(
            link("127.0.0.1:8080", Some("https://g.example")),
            "http://127.0.0.1:8080"
        );
        assert_eq!(link("[::1]:8080", None), "http://[::1]:8080");
        assert_eq!(link("0.0.0.0:8080", None), "http://127.0.0.1:8080");
        assert_eq!(
            link("0.0.0.0:8080", Some("https://g.example")),
            "https://g.example/g"
        );
        assert_eq!(link("10.0.0.5:80", None), "http://10.0.0.5:80");
    }

    #[test]
    fn page_url_is_the_public_one() {
        let bound = "127.0.0.1:8080".parse().unwrap();
        let public = PublicUrl::new("https://g.example".to_owned(), "/g/").unwrap();
        assert_eq!(page_url(bound, Some(&public)), "https://g.example/g");
        assert_eq!(page_url(bound, None), "http://127.0.0.1:8080");
    }
}
