//! Random grants, compared with a model.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use reqwest::Method;
use serde_json::json;

use super::{ALL, LEVELS, LIMITS, grant_by, ids};
use crate::key_life::{by, user_key};
use crate::support::gateway::KEY;
use crate::support::{Answer, Gateway, Setup};

/// A change of the grants by one of the users.
#[derive(Debug, Clone)]
struct Change {
    by: usize,
    session: usize,
    /// `None`: all users of the tenant.
    grantee: Option<usize>,
    /// An index of `LEVELS`. `None` removes the grant.
    access: Option<usize>,
}

const USERS: [&str; 3] = ["owner", "bob", "carol"];

fn change() -> impl Strategy<Value = Change> {
    let grantee = proptest::option::weighted(0.8, 0..USERS.len());
    let access = proptest::option::weighted(0.7, 0..LEVELS.len());
    (0..USERS.len(), 0..2_usize, grantee, access).prop_map(|(by, session, grantee, access)| {
        Change {
            by,
            session,
            grantee,
            access,
        }
    })
}

/// The grants of each session. User 0 owns all of them.
#[derive(Default)]
struct Model([BTreeMap<Option<usize>, usize>; 2]);

impl Model {
    fn access(&self, user: usize, session: usize) -> Option<usize> {
        if user == 0 {
            return Some(LEVELS.len() - 1);
        }
        let of_user = self.0[session].get(&Some(user));
        let of_all = self.0[session].get(&None);
        of_user.into_iter().chain(of_all).copied().max()
    }

    /// Applies a change. Returns the status of its request.
    fn apply(&mut self, change: &Change) -> u16 {
        match self.access(change.by, change.session) {
            None => return 404,
            Some(access) if access < LEVELS.len() - 1 => return 403,
            Some(_) => {}
        }
        if change.grantee == Some(0) {
            return 409;
        }
        let grants = &mut self.0[change.session];
        match change.access {
            Some(access) => {
                grants.insert(change.grantee, access);
                200
            }
            None if grants.remove(&change.grantee).is_some() => 204,
            None => 404,
        }
    }
}

struct Fixture {
    gateway: Gateway,
    keys: [String; 3],
}

impl Fixture {
    async fn request(&self, sessions: &[String], change: &Change) -> u16 {
        let session = &sessions[change.session];
        let grantee = match change.grantee {
            Some(user) => format!("user:{}", USERS[user]),
            None => "tenant".to_owned(),
        };
        let key = &self.keys[change.by];
        let request = if let Some(access) = change.access {
            grant_by(&self.gateway, key, session, &grantee, LEVELS[access])
        } else {
            let path = format!("/v1/sessions/{session}/grants/{grantee}");
            by(&self.gateway, key, Method::DELETE, &path)
        };
        Answer::of(request).await.status.as_u16()
    }

    /// Compares what each user can do with a session with the model, on several surfaces.
    async fn compare(&self, sessions: &[String], model: &Model) {
        for (user, key) in self.keys.iter().enumerate() {
            let list = by(
                &self.gateway,
                key,
                Method::GET,
                "/v1/sessions?shared=true&order=created",
            );
            let list = Answer::of(list).await.body;
            let shared = |at: &usize| user != 0 && model.access(user, *at).is_some();
            let expected: Vec<_> = (0..sessions.len()).filter(shared).collect();
            let expected: Vec<_> = expected.iter().map(|at| &*sessions[*at]).collect();
            assert_eq!(ids(&list), expected, "the list of {}", USERS[user]);
            for (at, session) in sessions.iter().enumerate() {
                let access = model.access(user, at);
                let who = format!("{} with {access:?}", USERS[user]);
                let path = format!("/v1/sessions/{session}");
                let read = Answer::of(by(&self.gateway, key, Method::GET, &path)).await;
                let name = access.map(|access| json!(LEVELS[access]));
                let shown = read.body.get("access").cloned();
                assert_eq!(shown, name, "{who}: {}", read.body);
                let of = |needed: usize, accepted: u16| match access {
                    None => 404,
                    Some(access) if access < needed => 403,
                    Some(_) => accepted,
                };
                let call = |method: Method, part: &str| {
                    let request = by(&self.gateway, key, method, &format!("{path}{part}"));
                    async move { request.send().await.expect("an answer").status().as_u16() }
                };
                assert_eq!(call(Method::GET, "/events").await, of(0, 200), "{who}");
                assert_eq!(call(Method::GET, "/files").await, of(0, 200), "{who}");
                assert_eq!(call(Method::POST, "/cancel").await, of(1, 204), "{who}");
                let path = format!("/v1/events?session={session}");
                let merged = Answer::of(by(&self.gateway, key, Method::GET, &path)).await;
                assert_eq!(merged.status.as_u16(), of(0, 200), "{who}");
                let chat = by(
                    &self.gateway,
                    key,
                    Method::GET,
                    &format!("/openai/v1/conversations/conv_{session}"),
                );
                let chat = Answer::of(chat).await;
                assert_eq!(chat.status.as_u16(), of(0, 200), "{who}: {}", chat.body);
            }
        }
    }
}

#[test]
fn random_grants_give_the_access_of_the_model_on_all_surfaces() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let fixture = runtime.block_on(async {
        let gateway = Setup::fake(&[]).settings(LIMITS).start();
        let bob = user_key(&gateway, "bob", ALL).await;
        let carol = user_key(&gateway, "carol", ALL).await;
        Fixture {
            gateway,
            keys: [KEY.to_owned(), bob, carol],
        }
    });
    let mut runner = TestRunner::new(Config {
        cases: 12,
        failure_persistence: None,
        ..Config::default()
    });
    let changes = proptest::collection::vec(change(), 1..10);
    let compared = runner.run(&changes, |changes| {
        runtime.block_on(async {
            let sessions = [
                fixture.gateway.session("fake").await,
                fixture.gateway.session("fake").await,
            ];
            let mut model = Model::default();
            for change in &changes {
                let status = fixture.request(&sessions, change).await;
                assert_eq!(status, model.apply(change), "{change:?} of {changes:?}");
            }
            fixture.compare(&sessions, &model).await;
            for session in &sessions {
                let path = format!("/v1/sessions/{session}");
                Answer::of(fixture.gateway.request(Method::DELETE, &path)).await;
            }
        });
        Ok(())
    });
    compared.expect("the answers are those of the model");
}
