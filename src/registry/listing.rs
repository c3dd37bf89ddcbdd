//! The agents of a registry for the page, loaded on demand.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::index::{Entry, Index, IndexError};
use super::source::{Source, SourceError};
use crate::outgoing::{AddressRule, Client, ClientOptions, TlsError};
use crate::types::ProxyVariables;

/// How long a loaded registry is used.
const MAX_AGE: Duration = Duration::from_mins(10);

#[derive(Debug, thiserror::Error)]
pub enum ListingError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The registry of the configuration. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Listing(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Option<Source>,
    proxies: ProxyVariables,
    client: OnceLock<Client>,
    /// One request loads the registry, and the others wait for it.
    loaded: Mutex<Option<(Instant, Arc<[Entry]>)>>,
}

impl Listing {
    pub fn new(source: Option<&str>, proxies: ProxyVariables) -> Self {
        let source = source.map(Source::parse);
        Self(Arc::new(Inner {
            source,
            proxies,
            client: OnceLock::new(),
            loaded: Mutex::new(None),
        }))
    }

    /// Whether the configuration names a registry.
    pub fn is_configured(&self) -> bool {
        self.0.source.is_some()
    }

    /// The valid entries of the registry. None without a registry.
    pub async fn entries(&self) -> Result<Arc<[Entry]>, ListingError> {
        let Some(source) = &self.0.source else {
            return Ok(Arc::default());
        };
        let mut loaded = self.0.loaded.lock().await;
        if let Some((at, entries)) = &*loaded
            && at.elapsed() < MAX_AGE
        {
            return Ok(Arc::clone(entries));
        }
        let text = source.load(self.client(source)?).await?;
        let entries: Arc<[Entry]> = Index::parse(&text)?.entries().collect();
        *loaded = Some((Instant::now(), Arc::clone(&entries)));
        Ok(entries)
    }

    fn client(&self, source: &Source) -> Result<&Client, TlsError> {
        if let Some(client) = self.0.client.get() {
            return Ok(client);
        }
        let client = Client::new(ClientOptions {
            proxies: &self.0.proxies,
            uses_tls: source.uses_tls(),
            ca_certificates: None,
            addresses: AddressRule::Any,
        })?;
        Ok(self.0.client.get_or_init(|| client))
    }
}
