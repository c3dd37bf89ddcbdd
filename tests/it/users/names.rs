//! The names of users, of their tenants and of their keys.

use reqwest::Method;
use serde_json::json;

use super::{LIMITS, User, sorted};
use crate::key_life::key_command;
use crate::support::gateway::{KEY_RELOAD_INTERVAL, NO_CONFIG_FILE, command};
use crate::support::places::gateway_program;
use crate::support::{Gateway, Setup};

/// The message of `key create` with these words, which must fail.
fn refused(gateway: &Gateway, words: &[&str]) -> String {
    let mut create = command(gateway_program());
    create
        .env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .env(KEY_RELOAD_INTERVAL.0, KEY_RELOAD_INTERVAL.1)
        .env("ACP_GATEWAY_DATA", gateway.path("data"))
        .args(["key", "create"])
        .args(words);
    let output = create.output().expect("the binary was built");
    assert!(!output.status.success(), "{words:?}: {output:?}");
    assert!(output.stdout.is_empty(), "{words:?}: {output:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[tokio::test]
async fn reserved_and_invalid_names_are_rejected_with_the_remedy() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let before = key_command(&gateway, &["list"]);
    let owner = refused(&gateway, &["owner"]);
    let expected =
        "the user 'owner' is the person that runs the gateway: name the key and add `--user owner`";
    assert!(owner.contains(expected), "{owner}");
    for name in ["admin", "attach", "link"] {
        for words in [&[name][..], &[name, "--user", "owner"]] {
            let message = refused(&gateway, words);
            let expected =
                format!("keys of the gateway itself have the name '{name}': use another name");
            assert!(message.contains(&expected), "{words:?}: {message}");
        }
    }
    let long = "x".repeat(65);
    for name in ["", "default/bob", "bob alice", "b\u{f6}b", "bob\n", &long] {
        for words in [
            &[name][..],
            &["bob", "--user", name],
            &["bob", "--tenant", name],
        ] {
            let message = refused(&gateway, words);
            let expected = "expected 1 to 64 letters, digits, '.', '_', '-' or '@'";
            assert!(message.contains(expected), "{words:?}: {message}");
        }
    }
    assert_eq!(
        key_command(&gateway, &["list"]),
        before,
        "no key is created"
    );
    // The remedy of the message works.
    let own = gateway.session("fake").await;
    let laptop = User::with(&gateway, &["laptop", "--user", "owner"]).await;
    assert_eq!(laptop.sessions("").await, [own]);
}

#[tokio::test]
async fn user_name_in_two_tenants_has_two_lists() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let of_owner = gateway.session("fake").await;
    // The names of one tenant are the beginning of another one, or of a user.
    let users = [
        User::new(&gateway, "bob").await,
        User::with(&gateway, &["one", "--tenant", "other", "--user", "bob"]).await,
        User::with(&gateway, &["two", "--tenant", "other.2", "--user", "bob"]).await,
        User::with(&gateway, &["three", "--tenant", "bob", "--user", "bob"]).await,
        User::with(&gateway, &["four", "--tenant", "other", "--user", "owner"]).await,
    ];
    let mut own = vec![Vec::new(); users.len()];
    for _ in 0..2 {
        for (user, own) in users.iter().zip(&mut own) {
            let body = json!({ "agent": "fake", "title": "Harbor" });
            own.push(user.created("/v1/sessions", &body, "sessionId").await);
        }
    }
    for (at, user) in users.iter().enumerate() {
        for query in ["", "&order=created", "&q=harbor", "&agent=fake"] {
            let listed = user.sessions(query).await;
            assert_eq!(sorted(listed), own[at], "{query}");
        }
        let others = own.iter().enumerate().filter(|(other, _)| *other != at);
        let others = others.flat_map(|(_, sessions)| sessions);
        for session in others.chain([&of_owner]) {
            let path = format!("/v1/sessions/{session}");
            let answer = user.call(Method::GET, &path).await;
            answer.problem(404, "not_found");
        }
    }
    // A second key of the name has the list of its tenant.
    let again = User::with(&gateway, &["bob", "--tenant", "other"]).await;
    assert_eq!(sorted(again.sessions("").await), own[1]);
    let list = key_command(&gateway, &["list"]);
    for user in ["bob", "other/bob", "other.2/bob", "bob/bob", "other/owner"] {
        let mut columns = list
            .lines()
            .filter_map(|line| line.split_whitespace().nth(2));
        assert!(columns.any(|column| column == user), "{user}: {list}");
    }
}
