//! Keys of every kind in the store of a running gateway.

use std::sync::Arc;
use std::time::Duration;

use acp_gateway::auth::limits::Limits;
use acp_gateway::auth::{Keys, NewKey};
use base::types::{Clock, Ids, PrincipalLimits, Scope, Scopes, Timestamp, UserId};
use log::store::SqliteStore;
use reqwest::StatusCode;

use super::operations::Needs;
use crate::support::gateway::KEY;
use crate::support::{Gateway, eventually};

/// A clock that is behind by more than the time after which an unused link key expires.
#[derive(Debug)]
struct LateClock;

impl Clock for LateClock {
    fn now(&self) -> Timestamp {
        let unused = Limits::default().link_key_idle_timeout + Duration::from_hours(1);
        let now = Ids::system().now().as_millis();
        Timestamp::from_millis(now - i64::try_from(unused.as_millis()).expect("a time of days"))
    }
}

/// A key with the name of its kind.
#[derive(Debug, Clone)]
pub(crate) struct Principal {
    pub(crate) name: &'static str,
    /// The text of the key. `None` sends no key.
    pub(crate) key: Option<String>,
    /// `None` if the key is not valid.
    pub(crate) scopes: Option<Scopes>,
}

impl Principal {
    pub(crate) fn has_scope(&self, name: &str) -> bool {
        let scope = Scope::ALL
            .iter()
            .copied()
            .find(|scope| scope.name() == name)
            .expect("a scope");
        self.scopes.is_some_and(|scopes| scopes.contains(scope))
    }

    /// The status with which admission rejects its requests. `None` admits them.
    pub(super) fn rejection(&self, needs: Needs) -> Option<StatusCode> {
        let Needs::Key(needed) = needs else {
            return None;
        };
        match (needed, self.scopes) {
            (_, None) => Some(StatusCode::UNAUTHORIZED),
            (Some(scope), Some(scopes)) if !scopes.contains(scope) => Some(StatusCode::FORBIDDEN),
            (_, Some(_)) => None,
        }
    }
}

/// The keys of the store of a running gateway, as `acp-gateway key` opens them.
fn stored(gateway: &Gateway, ids: &Ids) -> Keys {
    let limits = Limits::default();
    let log = gateway.path("data/private/log.sqlite");
    let store = SqliteStore::open(&log, ids.clone(), &log::limits::Limits::default())
        .expect("the gateway's store");
    Keys::open(
        Arc::new(store),
        ids.clone(),
        &limits,
        PrincipalLimits::default(),
        None,
    )
    .expect("its keys")
}

fn key(keys: &Keys, name: &str, user: UserId, scopes: Scopes) -> String {
    let new = NewKey {
        name,
        user,
        expires_at: None,
        scopes,
        member_names: Vec::new(),
        limits: Vec::new(),
    };
    keys.create(&new).expect("a key").0.expose().to_owned()
}

/// Waits until the gateway answers requests with this key with this status.
async fn known(gateway: &Gateway, key: &str, status: StatusCode) {
    eventually(
        "the gateway has read its keys again",
        Duration::from_secs(10),
        || async {
            let request = gateway
                .http
                .get(format!("{}/v1", gateway.url))
                .bearer_auth(key);
            (request.send().await.expect("an answer").status() == status).then_some(())
        },
    )
    .await;
}

/// A key of another tenant with all scopes.
pub(crate) async fn foreign_key(gateway: &Gateway) -> String {
    key_with_all_scopes(gateway, "mallory", UserId::from_text("other/owner")).await
}

/// A key of another user of the same tenant with all scopes.
pub(crate) async fn stranger_key(gateway: &Gateway) -> String {
    key_with_all_scopes(gateway, "stranger", UserId::from_text("default/stranger")).await
}

async fn key_with_all_scopes(gateway: &Gateway, name: &str, user: UserId) -> String {
    let keys = stored(gateway, &Ids::system());
    let text = key(&keys, name, user, Scope::ALL.iter().copied().collect());
    known(gateway, &text, StatusCode::OK).await;
    text
}

/// One principal of every kind.
pub(crate) async fn principals(gateway: &Gateway) -> Vec<Principal> {
    let expired = stored(gateway, &Ids::new(Arc::new(LateClock)));
    let expired = expired
        .create_link_key()
        .expect("a key")
        .expose()
        .to_owned();
    let keys = stored(gateway, &Ids::system());
    let all: Scopes = Scope::ALL.iter().copied().collect();
    let revoked = key(&keys, "revoked", UserId::owner(), all);
    known(gateway, &revoked, StatusCode::OK).await;
    keys.revoke("revoked").expect("it is there");
    known(gateway, &revoked, StatusCode::UNAUTHORIZED).await;

    let invalid = |name, key| Principal {
        name,
        key,
        scopes: None,
    };
    let mut found = vec![
        invalid("no key", None),
        invalid("a wrong key", Some(format!("{}x", &KEY[..KEY.len() - 1]))),
        invalid("a revoked key", Some(revoked)),
        invalid("an expired key", Some(expired)),
        Principal {
            name: "the configured admin",
            key: Some(KEY.to_owned()),
            scopes: Some(all),
        },
    ];
    for &scope in Scope::ALL {
        let scopes = Scopes::from_iter([scope]);
        let text = key(
            &keys,
            &format!("only-{}", scope.name()),
            UserId::owner(),
            scopes,
        );
        found.push(Principal {
            name: scope.name(),
            key: Some(text),
            scopes: Some(scopes),
        });
    }
    let link = keys.create_link_key().expect("a key").expose().to_owned();
    known(gateway, &link, StatusCode::OK).await;
    let scopes = Scope::ALL
        .iter()
        .copied()
        .filter(|scope| !matches!(scope, Scope::Admin | Scope::Fleet | Scope::Metrics))
        .collect();
    found.push(Principal {
        name: "a link",
        key: Some(link),
        scopes: Some(scopes),
    });
    found
}
