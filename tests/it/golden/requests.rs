//! Requests of agents, and the clients' answers.

use std::time::Duration;

use reqwest::Method;

use super::examples::REQUESTS;
use super::spelling::{odd, odd_to};
use super::{Raw, create, log, object, received, says, send};
use crate::support::{Gateway, Setup, eventually};

/// Makes the agent send a request and answers it. Returns the two events of the request.
async fn asked(gateway: &Gateway, session: &str, line: &str, answer: &str) -> [Raw; 2] {
    let lines = [line.to_owned()];
    let turn = says(gateway, session, &lines);
    tokio::pin!(turn);
    let open = eventually("the agent asks", Duration::from_secs(30), || async {
        let (_, open) = send(
            gateway,
            Method::GET,
            &format!("/v1/sessions/{session}/requests"),
            "",
        )
        .await;
        let open: Vec<Raw> = serde_json::from_str(object(&open).get("requests")).expect("a list");
        open.into_iter().next()
    });
    let open = tokio::select! {
        open = open => open,
        turn = &mut turn => panic!("{line} was not shown, and answered {:?}: {turn:?}", received(gateway).last()),
    };
    let request = open.get("requestId").to_owned();
    let path = format!(
        "/v1/sessions/{session}/requests/{}",
        request.trim_matches('"')
    );
    let (status, problem) = send(gateway, Method::POST, &path, answer).await;
    assert_eq!(status, 204, "{problem}");
    let turn = turn.await;
    assert_eq!(turn.get("status"), "\"completed\"");
    let events = log(gateway, session).await.into_iter();
    let events: Vec<Raw> = events
        .filter(|event| event.get("requestId") == request)
        .collect();
    events
        .try_into()
        .expect("a request has a beginning and an end")
}

fn request(row: usize, method: &str, params: &str) -> String {
    format!(r#"{{"method":"{method}","params":{params},"_e":1.10,"id":"g-{row}","jsonrpc":"2.0"}}"#)
}

/// The line with which the agent was answered.
fn answer_of(gateway: &Gateway, row: usize) -> String {
    let mut lines = received(gateway).into_iter();
    lines
        .find(|line| line.contains(&format!("\"id\":\"g-{row}\"")))
        .expect("the agent got its answer")
}

#[tokio::test]
async fn every_request_and_its_answer_pass_byte_for_byte() {
    let setup = Setup::fake_with(
        &["--log", "received"],
        "files = \"client\"\nterminals = \"client\"",
    );
    let gateway = setup.start();
    let session = create(&gateway).await;
    // A request with an unknown method is offered to a client that follows the session.
    let _follower = gateway
        .events(&format!("/v1/sessions/{session}/events"))
        .await;
    for (row, (method, params, result)) in REQUESTS.iter().enumerate() {
        // The gateway validates the answer of a form against its schema.
        let depth = if *method == "elicitation/create" {
            1
        } else {
            usize::MAX
        };
        let params = odd_to(params, depth);
        let result = odd_to(result, depth);
        let answer = format!(r#"{{"result": {result}}}"#);
        let [created, resolved] =
            asked(&gateway, &session, &request(row, method, &params), &answer).await;
        assert!(
            created.of("request.created") && resolved.of("request.resolved"),
            "{method}"
        );
        assert_eq!(created.get("method"), format!("\"{method}\""));
        assert_eq!(created.get("params"), params.replace("$SESSION", &session));
        assert_eq!(resolved.get("result"), result);
        let line = answer_of(&gateway, row);
        assert!(
            line.contains(&format!("\"result\":{result}")),
            "{method}: {line}"
        );
    }
}

#[tokio::test]
async fn an_error_that_a_client_answers_passes_byte_for_byte() {
    let gateway = Setup::fake_with(&["--log", "received"], "").start();
    let session = create(&gateway).await;
    let (method, params, _) = REQUESTS[0];
    let error = odd(r#"{"code":-32000,"message":"No","data":{"why":"so"}}"#);
    let answer = format!(r#"{{"error":{error}}}"#);
    let [_, resolved] = asked(&gateway, &session, &request(0, method, params), &answer).await;
    assert_eq!(resolved.get("error"), error);
    let line = answer_of(&gateway, 0);
    assert!(line.contains(&format!("\"error\":{error}")), "{line}");
}

#[tokio::test]
async fn elicitation_complete_passes_with_unknown_members() {
    let gateway = Setup::fake_with(&["--log", "received"], "").start();
    let session = create(&gateway).await;
    let (method, params, answer) = REQUESTS
        .iter()
        .find(|row| row.1.contains("elicitationId"))
        .expect("a page to visit");
    asked(
        &gateway,
        &session,
        &request(0, method, params),
        &format!(r#"{{"result":{answer}}}"#),
    )
    .await;
    let params = odd(r#"{"elicitationId":"e1"}"#);
    let line = format!(r#"{{"jsonrpc":"2.0","method":"elicitation/complete","params":{params}}}"#);
    says(&gateway, &session, &[line]).await;
    let events = log(&gateway, &session).await;
    let event = events
        .iter()
        .find(|event| event.of("elicitation.completed"))
        .expect("it passed");
    assert_eq!(event.get("elicitationId"), "\"e1\"");
    assert_eq!(
        object(event.get("more")).get("_x.later"),
        object(&params).get("_x.later")
    );
}
