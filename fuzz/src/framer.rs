//! The framing of an agent's bytes into lines, for any chunk boundaries.

use wire::jsonrpc::{self, LineDecoder, LineTooLong, Message};

use super::input::{Input, chunks};

/// The end of a stream.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The stream ended with this many bytes without a newline.
    Rest(usize),
    TooLong(usize),
}

/// The input is one byte for the cap, one for the number of cuts, the cuts, and the agent's bytes.
pub fn framer(data: &[u8]) {
    const GOOD: &[u8] = b"{\"method\":\"m\"}";
    let mut input = Input::new(data);
    let cap = usize::from(input.byte()) * 2;
    let cuts: Vec<u8> = (0..input.below(8)).map(|_| input.byte()).collect();
    // A complete message after a newline is read, regardless of the bytes before it.
    let whole = [input.rest(), b"\n", GOOD, b"\r\n"].concat();
    let expected = model(&whole, cap);
    for sizes in [&cuts[..], &[], &[1], &[2, 3]] {
        assert_eq!(
            read(&chunks(&whole, sizes), cap),
            expected,
            "cut by {sizes:?}"
        );
    }
    if let (lines, End::Rest(rest)) = &expected {
        assert_eq!(*rest, 0, "the stream ends with a newline");
        let messages: Vec<bool> = lines
            .iter()
            .map(|line| jsonrpc::parse(line, 128).is_ok())
            .collect();
        assert_eq!(
            messages.last(),
            Some(&true),
            "a bad line says nothing of the next one"
        );
        let last =
            jsonrpc::parse(lines.last().expect("there is a line"), 128).expect("it is a message");
        assert!(matches!(last, Message::Notification { method, .. } if &*method == "m"));
    }
}

fn read(chunks: &[&[u8]], cap: usize) -> (Vec<Vec<u8>>, End) {
    let mut lines = LineDecoder::new(cap);
    let mut got = Vec::new();
    for chunk in chunks {
        lines.read_buffer(chunk.len()).extend_from_slice(chunk);
        let block = lines.take_block();
        assert!(
            block.is_empty() || block.ends_with(b"\n"),
            "a block holds whole lines"
        );
        for line in lines
            .line_ranges(&block)
            .chain(lines.check_length().err().map(Err))
        {
            match line {
                Ok(line) => got.push(block[line].to_vec()),
                Err(LineTooLong { cap: reported }) => {
                    assert_eq!(reported, cap);
                    return (got, End::TooLong(cap));
                }
            }
        }
        assert!(lines.partial().len() <= cap, "no more than a line is kept");
    }
    (got, End::Rest(lines.partial().len()))
}

/// The model: frames the whole stream at once.
fn model(whole: &[u8], cap: usize) -> (Vec<Vec<u8>>, End) {
    let mut lines = Vec::new();
    let mut pieces: Vec<&[u8]> = whole.split(|byte| *byte == b'\n').collect();
    let rest = pieces.pop().unwrap_or_default();
    for line in pieces {
        if line.len() > cap {
            return (lines, End::TooLong(cap));
        }
        lines.push(line.strip_suffix(b"\r").unwrap_or(line).to_vec());
    }
    let end = if rest.len() > cap {
        End::TooLong(cap)
    } else {
        End::Rest(rest.len())
    };
    (lines, end)
}
