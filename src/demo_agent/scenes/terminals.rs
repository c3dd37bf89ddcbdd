//! Commands that really run, in a terminal of the client.

use std::time::Duration;

use agent_client_protocol_schema::v1::Error;
use serde_json::{Value, json};

use super::super::text::{error_text, excerpt, number, words};
use super::super::turn::{Step, Turn};

/// The interval between two checks of a command with a time limit.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The maximum number of characters of a command line in a title.
const TITLE_MAX: usize = 120;
/// The number of bytes of output that the client keeps.
const OUTPUT_BYTES: u64 = 64 << 10;

/// Runs a command until its end.
pub(super) async fn run(turn: &mut Turn, input: &str) -> Step {
    let Some((call, terminal)) = start(turn, input).await? else {
        return Ok(());
    };
    let ended = match request(turn, "wait_for_exit", &terminal).await? {
        Ok(_) => finish(turn, &terminal).await?,
        failed => failed,
    };
    conclude(turn, &call, ended).await
}

/// Runs a command, and kills it after the time limit.
pub(super) async fn timeout(turn: &mut Turn, input: &str) -> Step {
    let (seconds, line) = input.split_once(char::is_whitespace).unwrap_or((input, ""));
    let seconds = number(seconds, 5, 600);
    let Some((call, terminal)) = start(turn, line).await? else {
        return Ok(());
    };
    if still_runs(turn, &terminal, seconds).await? {
        turn.say(&format!(
            "It still runs after {seconds} s, so I kill it.\n\n"
        ))
        .await?;
        for method in ["kill", "wait_for_exit"] {
            if let Err(error) = request(turn, method, &terminal).await? {
                return conclude(turn, &call, Err(error)).await;
            }
        }
    }
    let ended = finish(turn, &terminal).await?;
    conclude(turn, &call, ended).await
}

/// Polls a command. Returns true if it has not ended within the time.
async fn still_runs(turn: &Turn, terminal: &str, seconds: u32) -> Step<bool> {
    for _ in 0..seconds * 5 {
        turn.wait(POLL_INTERVAL).await?;
        match request(turn, "output", terminal).await? {
            Ok(output) if output["exitStatus"].is_null() => {}
            // The final read of the output reports an error.
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Asks for permission if the mode requires it, and starts the command in the session's directory. Returns the
/// tool call and the terminal, or `None` if nothing was started.
async fn start(turn: &mut Turn, line: &str) -> Step<Option<(String, String)>> {
    let words = words(line);
    let Some((command, args)) = words.split_first() else {
        turn.say("Which command? `/run ls -la`, or `/timeout 2 sleep 60`.")
            .await?;
        return Ok(None);
    };
    let title = format!("Run {}", excerpt(&words.join(" "), TITLE_MAX));
    let input = json!({ "command": command, "args": args });
    let (call, permission) = turn
        .call_if_permitted(&json!({ "title": title, "kind": "execute", "rawInput": input }))
        .await?;
    if !permission.granted {
        turn.end_call(&call, "failed", "Not run.").await?;
        turn.say(&format!("{}, so the command did not run.", turn.denial()))
            .await?;
        return Ok(None);
    }
    let mut params = json!({
        "command": command,
        "env": [{ "name": "ACP_DEMO", "value": "1" }],
        "cwd": turn.record().cwd(),
        "outputByteLimit": OUTPUT_BYTES,
    });
    if !args.is_empty() {
        params["args"] = json!(args);
    }
    match turn.request("terminal/create", params).await? {
        Ok(created) => {
            let terminal = created["terminalId"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            turn.terminals.push(terminal.clone());
            let content = json!([{ "type": "terminal", "terminalId": terminal }]);
            turn.progress(
                &call,
                json!({ "status": "in_progress", "content": content }),
            )
            .await?;
            Ok(Some((call, terminal)))
        }
        Err(error) => {
            turn.end_call(&call, "failed", &error_text(&error)).await?;
            turn.say("The command could not be started.").await?;
            Ok(None)
        }
    }
}

async fn request(turn: &Turn, method: &str, terminal: &str) -> Step<Result<Value, Error>> {
    turn.request(
        &format!("terminal/{method}"),
        json!({ "terminalId": terminal }),
    )
    .await
}

/// Reads the output and the exit status, and releases the terminal.
async fn finish(turn: &mut Turn, terminal: &str) -> Step<Result<Value, Error>> {
    let output = request(turn, "output", terminal).await?;
    if output.is_err() {
        return Ok(output);
    }
    let released = request(turn, "release", terminal).await?;
    turn.terminals.retain(|open| open != terminal);
    Ok(released.and(output))
}

async fn conclude(turn: &mut Turn, call: &str, ended: Result<Value, Error>) -> Step {
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            turn.end_call(call, "failed", &error_text(&error)).await?;
            return turn.say("The terminal failed.").await;
        }
    };
    let exit = &ended["exitStatus"];
    let raw = json!({
        "exitCode": exit["exitCode"],
        "signal": exit["signal"],
        "truncated": ended["truncated"],
        "output": ended["output"],
    });
    let status = if exit["exitCode"] == 0 {
        "completed"
    } else {
        "failed"
    };
    turn.progress(call, json!({ "status": status, "rawOutput": raw }))
        .await?;
    let how = match (exit["exitCode"].as_u64(), exit["signal"].as_str()) {
        (Some(code), _) => format!("with the exit code {code}"),
        (None, Some(signal)) => format!("by the signal {signal}"),
        (None, None) => "without an exit status".to_owned(),
    };
    let cut = if ended["truncated"] == true {
        ", of which the first part is lost"
    } else {
        ""
    };
    let bytes = ended["output"].as_str().map_or(0, str::len);
    turn.say(&format!(
        "The command ended {how}, after {bytes} bytes of output{cut}."
    ))
    .await
}
