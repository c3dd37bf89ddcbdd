//! Commands that really run, in a terminal of the client.

use std::time::Duration;

use agent_client_protocol_schema::v1::{
    Error, Terminal, TerminalExitStatus, TerminalId, ToolCallContent, ToolCallId, ToolCallStatus,
    ToolCallUpdateFields, ToolKind,
};
use serde_json::json;

use super::super::permission::Permission;
use super::super::record::Grant;
use super::super::text::{error_text, excerpt, number, words};
use super::super::turn::{Step, Turn};
use super::work::{call, denied, failed};

/// The interval between two checks of a command with a time limit.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The maximum number of characters of a command line in a title.
const TITLE_MAX: usize = 120;

/// Starts the command, waits for its end, reads the output, and releases the terminal.
pub(super) async fn run(turn: &mut Turn, input: &str) -> Step {
    let words = words(input);
    let Some((tool, terminal)) = start(turn, &words).await? else { return Ok(()) };
    let ended = match turn.terminal_exit(&terminal).await? {
        Ok(_) => finish(turn, &terminal).await?,
        Err(error) => Err(error),
    };
    conclude(turn, &tool, ended).await
}

/// Starts the command, polls it, kills it after the time limit, reads the output, and releases the terminal.
pub(super) async fn timeout(turn: &mut Turn, input: &str) -> Step {
    let (seconds, line) = input.split_once(char::is_whitespace).unwrap_or((input, ""));
    let seconds = number(seconds, 5, 600);
    let words = words(line);
    let Some((tool, terminal)) = start(turn, &words).await? else { return Ok(()) };
    let looks = seconds * 5;
    let mut running = true;
    for _ in 0..looks {
        turn.wait(POLL_INTERVAL).await?;
        match turn.terminal_output(&terminal).await? {
            Ok(output) if output.exit_status.is_none() => {}
            // The final read of the output reports an error.
            Ok(_) | Err(_) => {
                running = false;
                break;
            }
        }
    }
    if running {
        turn.say(&format!("It still runs after {seconds} s, so I kill it.\n\n")).await?;
        if let Err(error) = turn.kill_terminal(&terminal).await? {
            return conclude(turn, &tool, Err(error)).await;
        }
        if let Err(error) = turn.terminal_exit(&terminal).await? {
            return conclude(turn, &tool, Err(error)).await;
        }
    }
    let ended = finish(turn, &terminal).await?;
    conclude(turn, &tool, ended).await
}

/// Asks for permission if the mode requires it, and starts the command. Returns `None` if nothing was started.
async fn start(turn: &mut Turn, words: &[String]) -> Step<Option<(ToolCallId, TerminalId)>> {
    if words.is_empty() {
        turn.say("Which command? `/run ls -la`, or `/timeout 2 sleep 60`.").await?;
        return Ok(None);
    }
    if !turn.offer.terminals {
        turn.say("Your client did not offer terminals, so I cannot run anything.").await?;
        return Ok(None);
    }
    let title = format!("Run {}", excerpt(&words.join(" "), TITLE_MAX));
    let input = json!({ "command": words[0], "args": words[1..] });
    let fields =
        ToolCallUpdateFields::new().title(title.clone()).kind(ToolKind::Execute).raw_input(input.clone());
    let tool = call(&title, ToolKind::Execute).status(ToolCallStatus::Pending).raw_input(input);
    let tool = turn.call(tool).await?;
    if turn.permission(&tool, fields, Grant::Execute).await? == Permission::Denied {
        turn.progress(&tool, failed("Not run.")).await?;
        turn.say(&denied(turn.mode(), "the command did not run")).await?;
        return Ok(None);
    }
    match turn.start_terminal(words).await? {
        Ok(terminal) => {
            let shown = vec![ToolCallContent::Terminal(Terminal::new(terminal.clone()))];
            let fields = ToolCallUpdateFields::new().status(ToolCallStatus::InProgress).content(shown);
            turn.progress(&tool, fields).await?;
            Ok(Some((tool, terminal)))
        }
        Err(error) => {
            turn.progress(&tool, failed(&error_text(&error))).await?;
            turn.say("The command could not be started.").await?;
            Ok(None)
        }
    }
}

/// The last output of a command, and how it ended.
struct Ended {
    output: String,
    truncated: bool,
    exit: Option<TerminalExitStatus>,
}

async fn finish(turn: &mut Turn, terminal: &TerminalId) -> Step<Result<Ended, Error>> {
    let output = match turn.terminal_output(terminal).await? {
        Ok(output) => output,
        Err(error) => return Ok(Err(error)),
    };
    let ended = Ended { output: output.output, truncated: output.truncated, exit: output.exit_status };
    Ok(turn.release_terminal(terminal).await?.map(|()| ended))
}

async fn conclude(turn: &mut Turn, tool: &ToolCallId, ended: Result<Ended, Error>) -> Step {
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            turn.progress(tool, failed(&error_text(&error))).await?;
            return turn.say("The terminal failed.").await;
        }
    };
    let (code, signal) = ended.exit.map_or((None, None), |exit| (exit.exit_code, exit.signal));
    let status = if code == Some(0) { ToolCallStatus::Completed } else { ToolCallStatus::Failed };
    let raw = json!({
        "exitCode": code, "signal": signal, "truncated": ended.truncated, "output": ended.output,
    });
    turn.progress(tool, ToolCallUpdateFields::new().status(status).raw_output(raw)).await?;
    let how = match (code, signal) {
        (Some(code), _) => format!("with the exit code {code}"),
        (None, Some(signal)) => format!("by the signal {signal}"),
        (None, None) => "without an exit status".to_owned(),
    };
    let cut = if ended.truncated { ", of which the first part is lost" } else { "" };
    turn.say(&format!("The command ended {how}, after {} bytes of output{cut}.", ended.output.len())).await
}
