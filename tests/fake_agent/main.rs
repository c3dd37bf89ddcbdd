//! A scripted stdio ACP agent that plays faults for the tests.
//!
//! What it does at its start is chosen by flags, what it does in a turn by the text of the prompt. Without either it
//! is a plain, correct agent: it echoes the prompt and ends the turn.
//!
//! # Flags
//!
//! | flag | what it does |
//! | --- | --- |
//! | `--no-load` | does not offer `session/load` (offered otherwise) |
//! | `--resume`, `--close`, `--list`, `--delete` | offers that method of `session/` (not offered otherwise: -32601) |
//! | `--resume-any` | likewise, and takes up any session, also one that it has never heard of |
//! | `--fail-load`, `--fail-resume` | offers it, and answers -32002 / -32601 |
//! | `--lock` | a session that a process has made, loaded or resumed is locked until that process ends, also after `session/close`; load and resume elsewhere answer -32600 |
//! | `--refuse-restore FILE` | as many loads and resumes as the file says are answered with -32603; the number is counted down |
//! | `--false-load` | every load and resume is answered with `{}` and does nothing; prompts for such a session answer -32602 |
//! | `--late-history` | `session/load` is answered after the first update of the history, and the others follow |
//! | `--no-methods` | load and resume answer -32601, whatever was offered |
//! | `--fork` | offers `session/fork` |
//! | `--models` | lists `models` at set-up, and takes `session/set_model` |
//! | `--mcp`, `--directories` | offers `mcpCapabilities.http`, `sessionCapabilities.additionalDirectories` |
//! | `--break-load`, `--stall-load` | ends, falls silent in the middle of the history of `session/load` |
//! | `--hang-initialize`, `--hang-new`, `--hang-load` | never answers that request |
//! | `--exit-at-start CODE` | writes "cannot start" to stderr and exits |
//! | `--noise-at-start` | two lines of text on stdout before anything else |
//! | `--plain-lines N` | N lines of text on stdout before anything else |
//! | `--slow-start MS` | sleeps before it reads |
//! | `--exclusive-start MS` | `initialize` in a HOME without the file `initialized` holds the file `initializing` for that time; an instance that finds it held writes "failed to initialize state" to stderr and exits with code 1 |
//! | `--short-life MS` | exits so long after `initialize` |
//! | `--no-capabilities` | `initialize` answers `{"protocolVersion":1}` and nothing else |
//! | `--media` | takes images and sounds in prompts |
//! | `--protocol N` | `initialize` answers that version |
//! | `--v2` | speaks v2 of ACP and nothing else; see [`v2`] for its prompts |
//! | `--refuse-version CODE` | `initialize` of a version above 1 answers this error |
//! | `--auth-required` | two `authMethods`; `session/new` answers -32000 until `authenticate` was called |
//! | `--ask-at-new` | an `elicitation/create` for its own `session/new`, which is answered after it |
//! | `--auth-at-load FILE` | `session/load` answers -32000 as many times as the number in the file says, until `authenticate` was called |
//! | `--auth-file FILE` | the sign-in is kept there, so that another process has it; else in the process alone |
//! | `--slow-auth MS` | sleeps before it answers `authenticate` |
//! | `--auth-once` | answers no `authenticate` but the first in the `--log` |
//! | `--auth-status`, `--logout` | offers `auth/status` / `logout` |
//! | `login` | no agent, but the sign-in in a terminal: asks for a word, which is `sesame`, and keeps the sign-in in the file |
//! | `--early-updates` | two updates for a session before the answer to its `session/new` |
//! | `--collide-ids` | session ids are "0", "1", ... in every process |
//! | `--zero-ids`, `--string-ids` | ids of its own requests are 0, 1, ... / "req-1", ... (1, 2, ... otherwise) |
//! | `--ignore-eof`, `--ignore-term` | the end of stdin / SIGTERM does not end it |
//! | `--log FILE` | appends every line that it receives |
//! | `--journal DIR` | keeps every line that it receives and writes in a file of its own there (see `journal.rs`) |
//! | `--answers FILE` | what each method is answered with: lines of a method, a blank and JSON; `$SESSION` is the session's id |
//! | `--state FILE` | keeps sessions and their history there, so that another process can load them |
//!
//! # Methods of its own
//!
//! `_vendor/echo` answers `{"params":...}` with what it got, `_vendor/fail` error -32050, `_vendor/hang` nothing.
//! `_vendor/ask` asks the client for an elicitation, a permission and `_vendor/thing`, and answers with what came.
//! A notification `_vendor/note` writes its params to stderr.
//!
//! # Commands in a prompt
//!
//! A prompt is one command, or several with `;` between them: `stream n=3; crash code=42`. Values are `key=value`;
//! the ones below are the defaults. Text is said in an `agent_message_chunk` of its own.
//!
//! | command | what it does |
//! | --- | --- |
//! | anything else | echoes the prompt's text (also a lone surrogate, as it was spelled) |
//! | `echo TEXT` | says TEXT, up to the end of the prompt |
//! | `raw LINES` | the rest of the prompt, line by line, as it is, with the session's id for `$SESSION` and the prompt's own JSON-RPC id for `$PROMPT`; waits for the answer of a request; `end RESULT` or `fail ERROR` answers the prompt |
//! | `stream n=10 size=64 rate=0 marker=0` | n chunks, a write each; the text begins with an 8-digit number from 0 |
//! | `flood n=100000 size=64 batch=65536 marker=0 session=ID` | the same in writes of up to `batch` bytes; for another session if it is named |
//! | `slow chunks=5 ms=100` | chunks with a pause before each |
//! | `hang cancel=yes` | never ends; at a cancel: `yes` answers `cancelled`, `no` nothing, `end_turn`, `error` |
//! | `ignore-cancel ms=100` | goes on saying "still here" whatever comes |
//! | `permission wait=no` | a `tool_call`, then a request with options `allow`, `allow_always`, `reject`; says `permission: <optionId>`, `permission: cancelled` or `permission: error CODE`. At a cancel it answers at once, with `wait=yes` after the client's answer |
//! | `permission-first` | the request before its `tool_call`, which never comes when it is rejected |
//! | `permissions n=3` | n requests open at once; says `permission 1: ...` for each |
//! | `cancel-notify ms=50` | a permission request, then `$/cancel_request` for it; says what answer came, or `none` |
//! | `crash code=42 chunks=3`, `crash signal=KILL` | chunks, "boom" on stderr, then the end of the process |
//! | `garbage n=5` | n lines that are not JSON, each between two chunks |
//! | `array` | a JSON-RPC batch that holds an update |
//! | `bad-flood n=5000` | n lines that are not JSON in one write |
//! | `bad-utf8` | a line with a byte that is not UTF-8, between two chunks |
//! | `split-utf8` | one chunk in writes that cut inside characters |
//! | `surrogate` | a chunk with the escape `\ud83d` alone |
//! | `long-line bytes=20000000` | one chunk of that size, then "after" |
//! | `drip ms=1` | one chunk, each byte of it a write |
//! | `wide chars=100000` | one chunk of so many characters of three bytes, then "after" |
//! | `endless bytes=100000000` | one line of that size that has no end |
//! | `unfinished at=line code=0` | the end of the process in a line: the prompt's answer before its end, or with `at=character` a chunk inside a character |
//! | `twice first=end_turn second=refusal` | two answers to the prompt in one write |
//! | `deep depth=200` | an update with `_meta` nested that deep, then "after" |
//! | `dup-keys session=other` | updates with the member `sessionId`, `method` or `update` twice, then "after" |
//! | `unknown-response` | answers to ids that nobody asked: unknown, string, null, none, and its prompt's again after the end |
//! | `id-last` | the answer to the prompt has `id` as its last member |
//! | `spoof session=not-mine` | a chunk for that session, then "mine" |
//! | `early n=3` | updates for the session that the next `session/new` makes |
//! | `late n=3 ms=50` | updates after the answer to the prompt: chunk, usage, title |
//! | `unserved` | requests `_vendor/thing`, `fs/read_text_file`, `terminal/create`; says `METHOD=CODE` for each |
//! | `ask method=_vendor/thing params={"sessionId":$SESSION} n=1 id=RAW take-back=MS heard=yes after=now` | n requests of any method at once, with `$SESSION` and `$PROMPT` in the params replaced by the session's id and the prompt's own JSON-RPC id (and no blank or `;` in them), under that JSON-RPC id instead of a new one; after `take-back` a `$/cancel_request` for each; says `METHOD: RESULT` (raw) or `METHOD: error CODE`. With `heard=no` it goes on after `ms=0` without the answers, with `after=cancel` it asks when the turn was cancelled |
//! | `complete id=e1` | the notification `elicitation/complete` |
//! | `read path=/w/a line=1 limit=2`, `write path=/w/a text=b` | the request `fs/..._text_file` (`session=` for another); says `[TEXT]`, `[written]` or `[error CODE]` |
//! | `terminal STEPS` | runs commands through the client, as the JSON array STEPS says, up to the end of the prompt (see `terminals.rs`) |
//! | `ext` | the notification `_vendor/note` |
//! | `fork seconds=300 stdout=no` | starts a grandchild in a session of its own that ignores TERM, and holds our stdout with `stdout=yes`; says its pid |
//! | `deaf` | reads nothing more from stdin, but for the next line, or the beginning of it |
//! | `stderr bytes=100000`, `stderr text=WORD` | writes to stderr |
//! | `freeze` | stops the process (SIGSTOP) until somebody continues it |
//! | `close-stdout` | closes stdout and lives on |
//! | `error code=-32603 message=failed` | the prompt is answered with an error |
//! | `stop reason=refusal` | the prompt ends with that reason |
//! | `title text=Fake`, `usage used=100`, `plan`, `tool`, `thought`, `user` | one update of that kind (`tool`: two) |
//! | `recall` | says all prompts of this session that began with `remember` |
//! | `modes` | changes mode and option itself, with their updates |
//! | `pid`, `env`, `cwd` | says its pid, its environment (`NAME=value` lines, sorted), its working folder |

mod agent;
mod asks;
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
    for line in BufReader::new(process::Ears::default()).split(b'\n') {
        match line {
            Ok(line) => {
                journal::received(&line);
                receive(&line);
            }
            Err(_) => break,
        }
    }
}
