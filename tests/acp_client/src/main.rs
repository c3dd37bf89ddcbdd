//! A client of the official Rust SDK against `/acp`. Prints one line of JSON for each step.
//!
//!     acp-client http|ws URL KEY

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ContentBlock, InitializeRequest, LoadSessionRequest, NewSessionRequest,
    PromptRequest, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    ResumeSessionRequest, SelectedPermissionOutcome, SessionId, SessionNotification, SessionUpdate,
    TextContent,
};
use agent_client_protocol::{Agent, Client, Error};
use agent_client_protocol_http::HttpClient;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Value, json};

/// The messages that the client has received since the last step.
#[derive(Default)]
struct Seen {
    chunks: usize,
    user: usize,
    options: Vec<String>,
    text: String,
}

type Shared = Arc<Mutex<Seen>>;

async fn print(seen: &Shared, step: &str, mut value: Value) {
    // The SDK handles notifications beside the response.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let Seen {
        chunks,
        user,
        options,
        text,
    } = std::mem::take(&mut *seen.lock().unwrap());
    value["step"] = json!(step);
    value["seen"] = json!({ "chunks": chunks, "user": user, "options": options, "text": text });
    println!("{value}");
}

fn failure<T>(outcome: Result<T, Error>) -> Value {
    match outcome {
        Ok(_) => Value::Null,
        Err(error) => json!({ "code": i32::from(error.code), "message": error.message }),
    }
}

/// Runs steps on a new connection.
async fn run<F>(
    transport: HttpClient,
    steps: impl FnOnce(ConnectionTo<Agent>, Shared) -> F,
) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    let seen = Shared::default();
    let updates = Arc::clone(&seen);
    let requests = Arc::clone(&seen);
    Client
        .v1()
        .on_receive_notification(
            async move |notification: SessionNotification, _cx| {
                let mut seen = updates.lock().unwrap();
                match notification.update {
                    SessionUpdate::AgentMessageChunk(chunk) => {
                        seen.chunks += 1;
                        if let ContentBlock::Text(TextContent { text, .. }) = chunk.content {
                            seen.text = text;
                        }
                    }
                    SessionUpdate::UserMessageChunk(_) => seen.user += 1,
                    _ => {}
                }
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        )
        .on_receive_request(
            async move |request: RequestPermissionRequest, responder, _connection| {
                let ids = request
                    .options
                    .iter()
                    .map(|option| option.option_id.to_string());
                requests.lock().unwrap().options = ids.collect();
                let selected = SelectedPermissionOutcome::new("allow");
                responder.respond(RequestPermissionResponse::new(
                    RequestPermissionOutcome::Selected(selected),
                ))
            },
            agent_client_protocol::on_receive_request!(),
        )
        .connect_with(transport, |connection: ConnectionTo<Agent>| async move {
            let initialize = InitializeRequest::new(ProtocolVersion::V1);
            let initialized = connection.send_request(initialize).block_task().await?;
            print(
                &seen,
                "initialize",
                json!({ "loadSession": initialized.agent_capabilities.load_session }),
            )
            .await;
            steps(connection, seen).await
        })
        .await
}

fn prompt(session: &SessionId, text: &str) -> PromptRequest {
    PromptRequest::new(
        session.clone(),
        vec![ContentBlock::Text(TextContent::new(text))],
    )
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [transport, url, key] = &*arguments else {
        return Err("expected http|ws URL KEY".into());
    };
    let url = if transport == "ws" {
        url.replacen("http", "ws", 1)
    } else {
        url.clone()
    };
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, format!("Bearer {key}").parse()?);
    let connect = || {
        let headers = headers.clone();
        HttpClient::builder_with_endpoint(&url)
            .configure_http(|http| http.no_proxy().default_headers(headers))
            .build()
    };

    let session = Arc::new(Mutex::new(SessionId::new("")));
    let created = Arc::clone(&session);
    run(connect()?, |connection, seen| async move {
        let new = connection
            .send_request(NewSessionRequest::new(""))
            .block_task()
            .await?;
        let session = new.session_id;
        *created.lock().unwrap() = session.clone();
        print(&seen, "new", json!({ "sessionId": session })).await;
        let turn = connection
            .send_request(prompt(&session, "stream n=20; permission"))
            .block_task()
            .await?;
        print(&seen, "turn", json!({ "stopReason": turn.stop_reason })).await;
        let hanging = connection.send_request(prompt(&session, "hang"));
        connection.send_notification(CancelNotification::new(session.clone()))?;
        let cancelled = hanging.block_task().await?;
        print(
            &seen,
            "cancel",
            json!({ "stopReason": cancelled.stop_reason }),
        )
        .await;
        let outside = connection
            .send_request(NewSessionRequest::new("/etc"))
            .block_task()
            .await;
        print(&seen, "outside", json!({ "error": failure(outside) })).await;
        let unknown = LoadSessionRequest::new("00000000-0000-7000-8000-000000000000", "/");
        let unknown = connection.send_request(unknown).block_task().await;
        print(&seen, "unknown", json!({ "error": failure(unknown) })).await;
        Ok(())
    })
    .await?;
    let id = session.lock().unwrap().clone();
    run(connect()?, |connection, seen| async move {
        connection
            .send_request(LoadSessionRequest::new(id.clone(), "/"))
            .block_task()
            .await?;
        print(&seen, "load", json!({})).await;
        let turn = connection
            .send_request(prompt(&id, "stream n=3; echo é☃😀"))
            .block_task()
            .await?;
        print(&seen, "again", json!({ "stopReason": turn.stop_reason })).await;
        Ok(())
    })
    .await?;
    let id = session.lock().unwrap().clone();
    run(connect()?, |connection, seen| async move {
        connection
            .send_request(ResumeSessionRequest::new(id.clone(), "/"))
            .block_task()
            .await?;
        print(&seen, "resume", json!({})).await;
        let turn = connection
            .send_request(prompt(&id, "echo last"))
            .block_task()
            .await?;
        print(&seen, "resumed", json!({ "stopReason": turn.stop_reason })).await;
        Ok(())
    })
    .await?;
    Ok(())
}
