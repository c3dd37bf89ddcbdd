//! Keys of fewer scopes than the admin's.

use std::time::Duration;

use reqwest::{Method, RequestBuilder};

use crate::support::gateway::{NO_CONFIG_FILE, command};
use crate::support::places::gateway_program;
use crate::support::{Answer, Gateway, eventually};

/// A new key that the running gateway knows.
pub(crate) async fn key(gateway: &Gateway, name: &str, scopes: &str) -> String {
    let mut command = command(gateway_program());
    command
        .env_clear()
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .env("ACP_GATEWAY_DATA", gateway.path("data"));
    let output = command
        .args(["key", "create", name, "--scopes", scopes])
        .output()
        .expect("the binary was built");
    assert!(output.status.success(), "{output:?}");
    let key = String::from_utf8(output.stdout)
        .expect("text")
        .trim_end()
        .to_owned();
    eventually(
        "the gateway has read its keys again",
        Duration::from_secs(30),
        || async {
            let answer = Answer::of(by(gateway, &key, Method::GET, "/v1")).await;
            (answer.status == 200).then_some(())
        },
    )
    .await;
    key
}

pub(crate) fn by(gateway: &Gateway, key: &str, method: Method, path: &str) -> RequestBuilder {
    gateway
        .http
        .request(method, format!("{}{path}", gateway.url))
        .bearer_auth(key)
}
