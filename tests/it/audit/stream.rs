//! `/v1/audit`: its scope, its formats, and streams that resume.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use super::{PATIENCE, audit, of};
use crate::key_life::key;
use crate::support::{Answer, Events, Gateway, Setup, eventually};

async fn ticket(gateway: &Gateway) {
    let created = gateway
        .posted("/v1/tickets", &[], &json!({ "paths": ["/v1/events"] }))
        .await;
    assert_eq!(created.status, 201);
}

#[tokio::test]
async fn only_the_scope_admin_reads_the_audit_log() {
    let gateway = Setup::fake(&[]).start();
    let all_others = key(&gateway, "reader", "read,prompt,approve,files").await;
    let request = gateway
        .http
        .get(format!("{}/v1/audit", gateway.url))
        .bearer_auth(all_others);
    Answer::of(request).await.problem(403, "forbidden");
    let admin = key(&gateway, "auditor", "admin").await;
    let request = gateway
        .http
        .get(format!("{}/v1/audit", gateway.url))
        .bearer_auth(admin);
    assert_eq!(Answer::of(request).await.status, 200);
    let paths = json!({ "paths": ["/v1/audit"] });
    gateway
        .posted("/v1/tickets", &[], &paths)
        .await
        .problem(422, "invalid");
}

#[tokio::test]
async fn no_route_changes_the_audit_log_and_no_session_route_shows_it() {
    let gateway = Setup::fake(&[]).start();
    ticket(&gateway).await;
    super::first(&gateway, "ticket.created").await;
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        gateway
            .call(method, "/v1/audit")
            .await
            .problem(405, "method_not_allowed");
    }
    let session = "/v1/sessions/00000000-0000-0000-0000-000000000000";
    for (method, path) in [
        (Method::GET, session.to_owned()),
        (Method::DELETE, session.to_owned()),
        (Method::GET, format!("{session}/events")),
        (
            Method::GET,
            format!("/v1/events?session={}", &session[13..]),
        ),
    ] {
        gateway.call(method, &path).await.problem(404, "not_found");
    }
    let merged = gateway
        .get("/v1/events?after=tail&types=ticket.created")
        .await;
    assert_eq!(merged["events"], json!([]));
    assert!(!audit(&gateway).await.is_empty());
}

#[tokio::test]
async fn pages_streams_and_lines_have_the_same_events() {
    let mut gateway = Setup::fake(&[]).start();
    gateway.session("fake").await;
    ticket(&gateway).await;
    gateway.stop();
    gateway.start();
    // Each start forgets the networks of the admin key, so its first request is an event.
    let events = eventually("the first use after the start", PATIENCE, || async {
        let events = audit(&gateway).await;
        (of(&events, "key.used_from_new_network").len() == 2).then_some(events)
    })
    .await;
    let page = gateway.get("/v1/audit?limit=1").await;
    assert_eq!(
        (&page["events"][0], &page["more"]),
        (&events[0], &json!(true))
    );
    let sse: Vec<Value> = gateway
        .events("/v1/audit?follow=false")
        .await
        .rest()
        .await
        .into_iter()
        .filter(|event| event.data["seq"].is_u64())
        .map(|event| event.data)
        .collect();
    assert_eq!(sse, events);
    let request = gateway
        .request(Method::GET, "/v1/audit?follow=false")
        .header("accept", "application/x-ndjson");
    let text = request
        .send()
        .await
        .expect("an answer")
        .text()
        .await
        .expect("lines");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    assert_eq!(
        lines
            .filter(|line| line["seq"].is_u64())
            .collect::<Vec<_>>(),
        events
    );
    let end = gateway
        .call(
            Method::GET,
            &format!(
                "/v1/audit?after={}",
                page["lastEventId"].as_str().expect("a cursor")
            ),
        )
        .await;
    assert_eq!(end.body["events"][0], events[1]);
}

/// Reads numbered events until their number reaches `through`.
async fn read_through(stream: &mut Events, seen: &mut Vec<u64>, through: u64) -> Option<String> {
    let mut id = None;
    while seen.last().is_none_or(|seq| *seq < through) {
        let event = stream.next().await.expect("the stream continues");
        assert!(!event.of("reset"), "{event:?}");
        if event.data["seq"].is_u64() {
            seen.push(event.seq());
            id = event.id;
        }
    }
    id
}

#[tokio::test]
async fn a_stream_resumes_without_loss_or_duplicates_over_restart_and_kill() {
    let mut gateway = Setup::fake(&[]).start();
    let mut seen: Vec<u64> = Vec::new();
    let mut cursor: Option<String> = None;
    for round in 0..4 {
        for _ in 0..3 {
            gateway.session("fake").await;
        }
        let last = audit(&gateway).await.last().expect("events")["seq"]
            .as_u64()
            .expect("a number");
        let mut stream = gateway.events_after("/v1/audit", cursor.as_deref()).await;
        let read = last - u64::from(round % 2 == 0);
        cursor = read_through(&mut stream, &mut seen, read).await.or(cursor);
        drop(stream);
        if round % 2 == 0 {
            gateway.kill();
        } else {
            gateway.stop();
        }
        gateway.start();
    }
    let last = audit(&gateway).await.last().expect("events")["seq"]
        .as_u64()
        .expect("a number");
    let mut stream = gateway.events_after("/v1/audit", cursor.as_deref()).await;
    read_through(&mut stream, &mut seen, last).await;
    assert_eq!(seen, (1..=last).collect::<Vec<_>>());
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len());
    let events = audit(&gateway).await;
    assert_eq!(of(&events, "isolation.applied").len(), 12);
}

#[tokio::test]
async fn a_stream_ends_with_its_key() {
    let gateway = Setup::fake(&[]).start();
    let auditor = key(&gateway, "auditor", "admin").await;
    let request = gateway
        .http
        .get(format!("{}/v1/audit", gateway.url))
        .bearer_auth(&auditor);
    let mut stream = Events::new(
        request
            .header("accept", "text/event-stream")
            .send()
            .await
            .expect("an answer"),
    );
    crate::key_life::key_command(&gateway, &["revoke", "auditor"]);
    let mut ended = false;
    while let Some(event) = stream.next().await {
        ended |= event.of("problem");
    }
    assert!(ended, "the stream ends with a problem");
}
