//! Finds the parts of a `session/update` line without parsing it into a tree. These lines are by far the most
//! frequent messages.
//!
//! The scan accepts only the usual spelling, and its result equals the result of
//! [`parse_update`](super::parse_update). Every other line is parsed.

use std::ops::Range;

use super::{method, update};
use crate::jsonrpc::JsonScanner;

/// The ranges of an update's parts in the scanned bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateLine {
    pub params: Range<usize>,
    /// The text of `params.sessionId`, without escapes.
    pub session_id: Range<usize>,
    pub update: Range<usize>,
    /// The text of `params.update.sessionUpdate`, without escapes.
    pub kind: Range<usize>,
    /// The value of `params._meta`, unless it is `null`.
    pub meta: Option<Range<usize>>,
    /// True if the kind only contains output: see [`update::is_chunk`].
    pub chunk: bool,
}

impl UpdateLine {
    /// Finds the parts of the line at `line` in `bytes`, which must be UTF-8. `None` if the line is another
    /// message or must be parsed.
    pub fn scan(bytes: &[u8], line: Range<usize>, max_depth: usize) -> Option<Self> {
        let base = line.start;
        let text = &bytes[line];
        let mut scan = JsonScanner::new(text, max_depth);
        let mut method = false;
        let mut parts = None;
        scan.object(|scan, name| {
            match name {
                b"method" if !method => {
                    method = &text[scan.unescaped_string()?] == method::SESSION_UPDATE.as_bytes();
                    return method.then_some(());
                }
                b"params" if parts.is_none() => parts = Some(Self::params(scan, text, base)?),
                b"jsonrpc" => {
                    scan.value()?;
                }
                // An `id` makes the message a request. A name with escapes may equal one of these names.
                _ => return None,
            }
            Some(())
        })?;
        scan.end()?;
        if method { parts } else { None }
    }

    fn params(scan: &mut JsonScanner<'_>, text: &[u8], base: usize) -> Option<Self> {
        let mut session_id = None;
        let mut update = None;
        let mut meta = None;
        let params = scan.object(|scan, name| {
            match name {
                b"sessionId" if session_id.is_none() => session_id = Some(scan.unescaped_string()?),
                b"update" if update.is_none() => update = Some(Self::update(scan, text)?),
                b"_meta" if meta.is_none() => meta = Some(scan.value()?),
                _ => return None,
            }
            Some(())
        })?;
        let (update, kind) = update?;
        let at = |range: Range<usize>| range.start + base..range.end + base;
        let chunk = update::is_chunk(&text[kind.clone()]);
        let meta = meta.filter(|meta| &text[meta.clone()] != b"null").map(at);
        Some(Self {
            params: at(params),
            session_id: at(session_id?),
            update: at(update),
            kind: at(kind),
            meta,
            chunk,
        })
    }

    fn update(scan: &mut JsonScanner<'_>, text: &[u8]) -> Option<(Range<usize>, Range<usize>)> {
        let mut kind = None;
        let update = scan.object(|scan, name| {
            if name == b"sessionUpdate" {
                return kind
                    .replace(scan.unescaped_string()?)
                    .is_none()
                    .then_some(());
            }
            // The name may be `sessionUpdate` with an escape.
            if name.contains(&b'\\') {
                return None;
            }
            scan.value().map(drop)
        })?;
        debug_assert_eq!(text[update.start], b'{');
        Some((update, kind?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::parse_update;
    use super::*;
    use crate::jsonrpc::{self, Message};

    const DEPTH: usize = 6;

    fn scan(line: &str) -> Option<UpdateLine> {
        // The line has a prefix, because ranges refer to all of the bytes.
        UpdateLine::scan(
            format!("{{}}\n{line}\n").as_bytes(),
            3..3 + line.len(),
            DEPTH,
        )
    }

    /// The parts that the parser finds in the line.
    fn parsed_parts(line: &str) -> Option<[Option<String>; 5]> {
        let Ok(Message::Notification { method, params }) = jsonrpc::parse(line.as_bytes(), DEPTH)
        else {
            return None;
        };
        if &*method != method::SESSION_UPDATE {
            return None;
        }
        let view = parse_update(&params).ok()?;
        let own = |text: &str| Some(text.to_owned());
        let meta = view.meta.map(|meta| meta.get().to_owned());
        view.more.is_none().then(|| {
            [
                own(params.get()),
                own(&view.session_id),
                own(view.update.get()),
                own(&view.kind),
                meta,
            ]
        })
    }

    fn part_texts(line: &str, parts: &UpdateLine) -> [Option<String>; 5] {
        let text = |at: &Range<usize>| Some(line[at.start - 3..at.end - 3].to_owned());
        let UpdateLine {
            params,
            session_id,
            update,
            kind,
            meta,
            ..
        } = parts;
        [
            text(params),
            text(session_id),
            text(update),
            text(kind),
            meta.as_ref().and_then(text),
        ]
    }

    #[test]
    fn lines_of_real_agents_are_scanned() {
        for (line, chunk) in [
            (
                r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a\nb\ud83d"}}}}"#,
                true,
            ),
            (
                r#"{"method":"session/update","params":{"update":{"content":{"n":1e400},"sessionUpdate":"agent_thought_chunk"},"_meta":{"k":[1.10]},"sessionId":""},"jsonrpc":"2.0"}"#,
                true,
            ),
            (
                r#" { "params" : { "_meta" : null , "sessionId" : "a b" , "update" : { "sessionUpdate" : "plan" , "x" : "\u0061" } } , "method" : "session/update" } "#,
                false,
            ),
        ] {
            let parts = scan(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(Some(part_texts(line, &parts)), parsed_parts(line), "{line}");
            assert_eq!(parts.chunk, chunk, "{line}");
        }
    }

    #[test]
    fn lines_that_need_parsing_are_not_scanned() {
        let line = |params: &str| format!(r#"{{"method":"session/update","params":{{{params}}}}}"#);
        let update = r#""update":{"sessionUpdate":"plan"}"#;
        assert!(scan(&line(&format!(r#""sessionId":"s",{update}"#))).is_some());
        for params in [
            format!(r#""sessionId":"\u0073",{update}"#),
            format!(r#""sessionId":"s","sessionId":"s",{update}"#),
            format!(r#""session\u0049d":"s","sessionId":"s",{update}"#),
            format!(r#""sessionId":"s",{update},{update}"#),
            format!(r#""sessionId":"s",{update},"later":1"#),
            format!(r#""sessionId":1,{update}"#),
            r#""sessionId":"s","update":{"sessionUpdate":"plan","sessionUpdate":"plan"}"#
                .to_owned(),
            r#""sessionId":"s","update":{"sessionUpdate":"plan","session\u0055pdate":"plan"}"#
                .to_owned(),
            r#""sessionId":"s","update":{"sessionUpdate":"pl\u0061n"}"#.to_owned(),
            r#""sessionId":"s","update":["plan"]"#.to_owned(),
            r#""sessionId":"s","update":{"sessionUpdate":"plan","x":[[[[1]]]]}"#.to_owned(),
            r#""sessionId":"s""#.to_owned(),
            update.to_owned(),
        ] {
            assert_eq!(scan(&line(&params)), None, "{params}");
        }
        let params = format!(r#""params":{{"sessionId":"s",{update}}}"#);
        for (before, after) in [
            (r#""id":1,"method":"session/update","#, ""),
            (
                r#""method":"session/update","method":"session/update","#,
                "",
            ),
            (r#""method":"session/request_permission","#, ""),
            ("", ""),
            (r#""method":"session/update","#, r#","result":1"#),
            (r#""method":"session/update","#, r#","\u0069d":1"#),
        ] {
            assert_eq!(
                scan(&format!("{{{before}{params}{after}}}")),
                None,
                "{before} {after}"
            );
        }
        assert_eq!(
            scan(&format!(r#"{{"method":"session/update",{params}}} x"#)),
            None
        );
    }

    /// Lines that resemble updates: members in any order, some repeated, missing or unusually spelled, with
    /// white space.
    fn lines() -> impl Strategy<Value = String> {
        let space = || prop::sample::select(vec!["", "", "", " ", "\t", "\r "]);
        let member = move |names: Vec<&'static str>, values: BoxedStrategy<String>| {
            (prop::sample::select(names), space(), values, space()).prop_map(
                |(name, before, value, after)| {
                    format!("{after}\"{name}\"{before}:{before}{value}{after}")
                },
            )
        };
        let texts = |texts: Vec<&'static str>| {
            prop::sample::select(texts)
                .prop_map(|text| format!("\"{text}\""))
                .boxed()
        };
        let odd = || {
            let values = vec![
                "null",
                "{}",
                "[1,{\"a\":2}]",
                "\"\\ud800\"",
                "-1.50e+3",
                "true",
                "[[[[[0]]]]]",
                "{\"a\":}",
                "01",
                "\"\t\"",
            ];
            prop::sample::select(values).prop_map(str::to_owned).boxed()
        };
        let object = |members: Vec<BoxedStrategy<String>>| {
            let keep = prop::collection::vec(0..10u8, members.len());
            (members, keep, any::<prop::sample::Index>())
                .prop_map(|(mut members, keep, turn)| {
                    let again = turn.index(members.len());
                    let doubled = members[again].clone();
                    members.rotate_left(again);
                    let mut kept: Vec<_> = members
                        .into_iter()
                        .zip(&keep)
                        .filter(|(_, keep)| **keep > 0)
                        .map(|(member, _)| member)
                        .collect();
                    if keep.iter().all(|keep| *keep > 8) {
                        kept.push(doubled);
                    }
                    format!("{{{}}}", kept.join(","))
                })
                .boxed()
        };
        let kinds = texts(vec!["agent_message_chunk", "plan", "pl\\u0061n", ""]);
        let update = object(vec![
            member(
                vec!["sessionUpdate", "sessionUpdate", "session\\u0055pdate"],
                kinds,
            )
            .boxed(),
            member(vec!["content", "sessionId", "\\ud800"], odd()).boxed(),
        ]);
        let params = object(vec![
            member(vec!["sessionId"], texts(vec!["s", "é\\\\", ""])).boxed(),
            member(vec!["update"], prop_oneof![4 => update, 1 => odd()].boxed()).boxed(),
            member(vec!["_meta", "_meta", "more"], odd()).boxed(),
        ]);
        object(vec![
            member(vec!["jsonrpc", "jsonrpc", "id"], texts(vec!["2.0"])).boxed(),
            member(
                vec!["method"],
                texts(vec![
                    "session/update",
                    "session/update",
                    "session\\/update",
                    "x",
                ]),
            )
            .boxed(),
            member(vec!["params"], prop_oneof![8 => params, 1 => odd()].boxed()).boxed(),
        ])
    }

    proptest! {
        #[test]
        fn the_scan_agrees_with_the_parser(line in lines(), cut in 0..200usize) {
            for line in [&*line, line.get(..cut).unwrap_or_default(), &format!("{line}{}", &line[..line.len().min(1)])] {
                if let Some(parts) = scan(line) {
                    prop_assert_eq!(Some(part_texts(line, &parts)), parsed_parts(line), "{}", line);
                }
            }
        }

        #[test]
        fn ordinary_updates_are_scanned(text in "\\PC*", session in "[a-z0-9-]{0,12}", n in any::<f64>()) {
            let text = serde_json::to_string(&text).unwrap();
            let line = format!(
                r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{session}","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":{text}}}}},"_meta":{n:e}}}}}"#
            );
            let seen = parsed_parts(&line);
            prop_assert_eq!(scan(&line).map(|parts| part_texts(&line, &parts)), seen);
        }
    }
}
