//! A scripted ACP agent on stdio that simulates faults for the tests.
//!
//! Flags select its behaviour at the start, and the text of a prompt selects its behaviour in a turn. By
//! default it is a correct agent: it echoes the prompt and ends the turn.
//!
//! # Flags
//!
//! | flag | effect |
//! | --- | --- |
//! | `--no-load` | does not offer `session/load` (default: offered) |
//! | `--resume`, `--close`, `--list`, `--delete` | offers the method of `session/` (default: not offered, -32601) |
//! | `--resume-any` | offers `session/resume` and accepts every session, also unknown ones |
//! | `--fail-load`, `--fail-resume` | offers the method and answers -32002 / -32601 |
//! | `--lock` | the process that creates, loads or resumes a session locks it until the process ends, also after `session/close`; load and resume in other processes answer -32600 |
//! | `--refuse-restore FILE` | answers -32603 to load and resume as often as the number in the file, which is decremented |
//! | `--refusal TEXT` | the answer of `--refuse-restore` is -32600 with this text |
//! | `--false-load` | answers `{}` to every load and resume and does nothing; prompts for the session answer -32602 |
//! | `--late-history` | answers `session/load` after the first update of the history and sends the others later |
//! | `--no-methods` | load and resume answer -32601, whatever was offered |
//! | `--fork` | offers `session/fork` |
//! | `--models` | lists `models` at set-up and accepts `session/set_model` |
//! | `--mcp`, `--directories` | offers `mcpCapabilities.http`, `sessionCapabilities.additionalDirectories` |
//! | `--break-load`, `--stall-load` | exits, or stops writing, in the middle of the history of `session/load` |
//! | `--hang-initialize`, `--hang-new`, `--hang-load` | never answers the request |
//! | `--exit-at-start CODE` | writes "cannot start" to stderr and exits |
//! | `--noise-at-start` | writes two lines of text to stdout first |
//! | `--plain-lines N` | writes N lines of text to stdout first |
//! | `--slow-start MS` | sleeps before it reads |
//! | `--exclusive-start MS` | `initialize` in a HOME without the file `initialized` holds the file `initializing` for this time; an instance that finds it writes "failed to initialize state" to stderr and exits with code 1 |
//! | `--short-life MS` | exits this long after `initialize` |
//! | `--no-capabilities` | `initialize` answers only `{"protocolVersion":1}` |
//! | `--media` | accepts images and audio in prompts |
//! | `--protocol N` | `initialize` answers this version |
//! | `--v2` | supports only v2 of ACP; its prompts are described in [`v2`] |
//! | `--refuse-version CODE` | `initialize` of a version above 1 answers this error |
//! | `--auth-required` | offers two `authMethods`; `session/new` answers -32000 until `authenticate` was called |
//! | `--ask-at-new` | sends an `elicitation/create` for its own `session/new`, and answers `session/new` afterwards |
//! | `--auth-at-load FILE` | `session/load` answers -32000 as many times as the number in the file says, until `authenticate` was called |
//! | `--auth-file FILE` | stores the sign-in in the file, so that other processes have it (default: only in the process) |
//! | `--slow-auth MS` | sleeps before it answers `authenticate` |
//! | `--auth-once` | answers only the first `authenticate` in the `--log` |
//! | `--auth-status`, `--logout` | offers `auth/status` / `logout` |
//! | `login` | runs the sign-in in a terminal instead of an agent: asks for the word `sesame` and stores the sign-in in the file |
//! | `--early-updates` | sends two updates for a session before the answer to its `session/new` |
//! | `--collide-ids` | session ids are "0", "1", ... in every process |
//! | `--zero-ids`, `--string-ids` | ids of its own requests are 0, 1, ... / "req-1", ... (default: 1, 2, ...) |
//! | `--ignore-eof`, `--ignore-term` | ignores the end of stdin / SIGTERM |
//! | `--log FILE` | appends every received line |
//! | `--journal DIR` | writes every received and sent line to a file per process (see `journal.rs`) |
//! | `--answers FILE` | reads the results of methods from the file: lines of a method, a blank and JSON; `$SESSION` is the id of the session |
//! | `--state FILE` | stores sessions and their history, so that another process can load them |
//!
//! # Methods of its own
//!
//! `_vendor/echo` answers `{"params":...}` with its params, `_vendor/fail` answers error -32050, and
//! `_vendor/hang` never answers. `_vendor/ask` sends an elicitation, a permission request and `_vendor/thing`
//! to the client, and answers with the results. A notification `_vendor/note` writes its params to stderr.
//!
//! # Commands in a prompt
//!
//! A prompt is one command, or several separated by `;`: `stream n=3; crash code=42`. Values are `key=value`,
//! and the table shows the defaults. Each text is a separate `agent_message_chunk`.
//!
//! | command | effect |
//! | --- | --- |
//! | any other text | echoes the text of the prompt (also a lone surrogate, in its original spelling) |
//! | `echo TEXT` | sends TEXT, up to the end of the prompt |
//! | `raw LINES` | sends the rest of the prompt unchanged, line by line, with the session's id for `$SESSION` and the prompt's own JSON-RPC id for `$PROMPT`; a request waits for its answer; `end RESULT` or `fail ERROR` answers the prompt |
//! | `stream n=10 size=64 rate=0 marker=0` | sends n chunks, one write each; the text begins with an 8-digit number from 0 |
//! | `flood n=100000 size=64 batch=65536 marker=0 session=ID` | the same in writes of up to `batch` bytes; `session` selects another session |
//! | `slow chunks=5 ms=100` | sends chunks with a pause before each |
//! | `hang cancel=yes` | never ends; after a cancel: `yes` answers `cancelled`, `no` does not answer, `end_turn`, `error` |
//! | `ignore-cancel ms=100` | sends "still here" repeatedly and ignores cancels |
//! | `permission wait=no` | sends a `tool_call`, then a request with the options `allow`, `allow_always`, `reject`; sends `permission: <optionId>`, `permission: cancelled` or `permission: error CODE`. After a cancel it answers at once, or with `wait=yes` after the client's answer |
//! | `permission-first` | sends the request before its `tool_call`, which it omits after a rejection |
//! | `permissions n=3` | opens n requests at the same time; sends `permission 1: ...` for each |
//! | `cancel-notify ms=50` | sends a permission request, then `$/cancel_request` for it; sends the received answer, or `none` |
//! | `crash code=42 chunks=3`, `crash signal=KILL` | sends chunks, writes "boom" to stderr, and ends the process |
//! | `garbage n=5` | sends n lines that are not JSON, each between two chunks |
//! | `array` | sends a JSON-RPC batch that contains an update |
//! | `bad-flood n=5000` | sends n lines that are not JSON in one write |
//! | `bad-utf8` | sends a line with invalid UTF-8 between two chunks |
//! | `split-utf8` | sends one chunk in writes that split characters |
//! | `surrogate` | sends a chunk with only the escape `\ud83d` |
//! | `long-line bytes=20000000` | sends one chunk of this size, then "after" |
//! | `drip ms=1` | sends one chunk, one byte per write |
//! | `wide chars=100000` | sends one chunk of this many three-byte characters, then "after" |
//! | `endless bytes=100000000` | sends this many bytes of a line that has no end |
//! | `unfinished at=line code=0` | ends the process within a line: in the answer to the prompt, or with `at=character` within a character of a chunk |
//! | `twice first=end_turn second=refusal` | sends two answers to the prompt in one write |
//! | `deep depth=200` | sends an update with `_meta` of this nesting depth, then "after" |
//! | `dup-keys session=other` | sends updates with a duplicate member `sessionId`, `method` or `update`, then "after" |
//! | `unknown-response` | sends answers with unknown ids: number, string, null, none, and the id of the prompt again after its answer |
//! | `id-last` | the answer to the prompt has `id` as its last member |
//! | `spoof session=not-mine` | sends a chunk for this session, then "mine" |
//! | `early n=3` | sends updates for the session of the next `session/new` |
//! | `late n=3 ms=50` | sends updates after the answer to the prompt: chunk, usage, title |
//! | `unserved` | sends the requests `_vendor/thing`, `fs/read_text_file`, `terminal/create`; sends `METHOD=CODE` for each |
//! | `ask method=_vendor/thing params={"sessionId":$SESSION} n=1 id=RAW cancel-after=MS report=yes after=now` | sends n requests of any method at the same time, with the JSON-RPC id `id` instead of a new one; the params contain no blank or `;`, and `$SESSION` and `$PROMPT` are replaced by the session's id and the prompt's own JSON-RPC id; after `cancel-after` sends a `$/cancel_request` for each; sends `METHOD: RESULT` (raw) or `METHOD: error CODE`. With `report=no` it continues after `ms=0` without the answers, with `after=cancel` it sends the requests after a cancel |
//! | `complete id=e1` | sends the notification `elicitation/complete` |
//! | `read path=/w/a line=1 limit=2`, `write path=/w/a text=b` | sends the request `fs/..._text_file` (`session` selects another session); sends `[TEXT]`, `[written]` or `[error CODE]` |
//! | `terminal STEPS` | runs commands through the client, given as a JSON array up to the end of the prompt (see `terminals.rs`) |
//! | `telemetry signal=traces n=1 bytes=0` | sends n OTLP requests to the receiver that its environment names, each with a span of this size; sends the statuses, or `no receiver` |
//! | `ext` | sends the notification `_vendor/note` |
//! | `fork seconds=300 stdout=no` | starts a grandchild in a separate session that ignores TERM, and keeps stdout open with `stdout=yes`; sends its pid |
//! | `deaf` | stops reading stdin, except for at most one more line or its beginning |
//! | `stderr bytes=100000`, `stderr text=WORD` | writes to stderr |
//! | `freeze` | suspends the process (SIGSTOP) until it receives SIGCONT |
//! | `close-stdout` | closes stdout and keeps running |
//! | `error code=-32603 message=failed` | answers the prompt with an error |
//! | `stop reason=refusal` | ends the prompt with this reason |
//! | `title text=Fake`, `usage used=100`, `plan`, `tool`, `thought`, `user` | sends one update of this kind (`tool`: two) |
//! | `recall` | sends all prompts of this session that began with `remember` |
//! | `modes` | changes its mode and an option, and sends the updates |
//! | `pid`, `env`, `cwd` | sends its pid, its environment (`NAME=value` lines, sorted), its working directory |

mod agent;
mod client_requests;
mod auth;
mod faults;
mod files;
mod flags;
mod flood;
mod handover;
mod journal;
mod pieces;
mod process;
mod raw;
mod requests;
mod script;
mod session;
mod telemetry;
mod terminals;
mod turn;
mod v2;
mod wire;

use std::io::{BufRead as _, BufReader};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let flags = match flags::Flags::parse(std::env::args().skip(1)) {
        Ok(flags) => flags,
        Err(wrong) => {
            process::stderr(format!("fake-agent: {wrong}\n").as_bytes());
            return ExitCode::from(2);
        }
    };
    if let Some(code) = flags.exit_at_start {
        process::stderr(b"cannot start\n");
        return ExitCode::from(code);
    }
    if flags.ignore_term {
        process::ignore_term();
    }
    if flags.sign_in {
        return auth::terminal(flags.auth_file.as_deref());
    }
    if let Some(Err(error)) = flags.journal.as_deref().map(journal::open) {
        process::stderr(format!("fake-agent: --journal: {error}\n").as_bytes());
        return ExitCode::from(2);
    }
    std::thread::sleep(flags.slow_start);
    let ignore_eof = flags.ignore_eof;
    if flags.v2 {
        let mut agent = v2::Agent::new(flags);
        each_line(|line| agent.receive(line));
    } else {
        let mut agent = agent::Agent::new(flags);
        each_line(|line| agent.receive(line));
    }
    if ignore_eof {
        loop {
            std::thread::sleep(Duration::from_hours(1));
        }
    }
    ExitCode::SUCCESS
}

fn each_line(mut receive: impl FnMut(&[u8])) {
    for line in BufReader::new(process::PausableStdin::default()).split(b'\n') {
        match line {
            Ok(line) => {
                journal::received(&line);
                receive(&line);
            }
            Err(_) => break,
        }
    }
}
