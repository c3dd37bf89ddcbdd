//! The messages between the gateway and a member, and their bytes.
//!
//! Each WebSocket message is one frame: a JSON object in one line, then the payload, which is empty for most types. Output
//! of an agent is numbered by the offset of its bytes in the channel, and commands of the gateway by their position.

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use base::types::{AgentDialect, AgentName};

pub const PROTOCOL: u32 = 1;
/// The maximum size of the payload of one `output` frame.
pub(super) const OUTPUT_BYTES: usize = 64 << 10;
/// The maximum size of a frame of a member. `hello` with its channels is the largest one apart from output.
pub const MEMBER_FRAME_BYTES: usize = 256 << 10;
/// The maximum size of a frame of the gateway. The largest line contains a prompt.
pub const GATEWAY_FRAME_BYTES: usize = 64 << 20;
/// The maximum size of the header of a frame.
const HEADER_BYTES: usize = MEMBER_FRAME_BYTES;

/// A channel: one process of a member. The gateway chooses the id, which nobody can guess.
pub type ChannelId = Uuid;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hello {
    pub protocol: u32,
    pub name: AgentName,
    /// The resume token: a random id of the process of the member. Only a connection with the same token replaces another
    /// one of the same name.
    pub instance: Uuid,
    pub info: MemberInfo,
    pub channels: Vec<HeldChannel>,
    /// The number of failed attempts to connect since the last connection.
    #[serde(default)]
    pub attempt: u32,
    /// Why the last connection ended, or the last attempt failed.
    pub error: Option<String>,
}

/// The description of a member, which it chooses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberInfo {
    /// The number of processes that the member runs at the same time.
    pub capacity: usize,
    pub version: String,
    /// The protocol of the agent. The member translates it to ACP; it decides whether a process serves one session.
    #[serde(default)]
    pub dialect: AgentDialect,
    /// The absolute folders of the member in which sessions may work. The first one is the default.
    #[serde(default)]
    pub roots: Vec<String>,
    #[serde(default)]
    pub metadata: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldChannel {
    pub channel: ChannelId,
    /// The number of the last command of the gateway that the member has received.
    pub received: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessEnd {
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
    pub stderr_tail: String,
    /// Why the process could not be started, or was stopped.
    pub reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum MemberFrame {
    Hello(Box<Hello>),
    /// The payload is output of the agent. Its first byte is the byte `offset` of the channel.
    Output {
        channel: ChannelId,
        offset: u64,
    },
    /// The process has ended after `offset` bytes of output.
    Ended {
        channel: ChannelId,
        offset: u64,
        end: Box<ProcessEnd>,
    },
    /// The member has received all commands up to `number`.
    Received {
        channel: ChannelId,
        number: u64,
    },
    /// The clock of the sender in milliseconds, which only the sender reads.
    Ping {
        at: u64,
    },
    Pong {
        at: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum GatewayFrame {
    Welcome {
        /// The number of bytes of output that the member may send without an acknowledgement, for each channel.
        window: u64,
        /// The interval of heartbeats in milliseconds. A peer that sends nothing for three intervals is gone.
        heartbeat: u64,
    },
    /// The member sends the output from `offset` on.
    Resume {
        channel: ChannelId,
        offset: u64,
    },
    /// Everything that the gateway made of the output before `offset` is durable. The member discards it.
    Durable {
        channel: ChannelId,
        offset: u64,
    },
    /// The command with this number. The payload is the line of a command `line`.
    Command {
        channel: ChannelId,
        number: u64,
        command: Command,
    },
    /// The gateway does not need the channel. The member stops its process and discards its output.
    Forget {
        channel: ChannelId,
    },
    Ping {
        at: u64,
    },
    Pong {
        at: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Open,
    /// Write a line to the process. The process receives at most one line with the same `once`, also from a gateway that was
    /// killed and started again.
    Line {
        once: Option<String>,
    },
    Close,
}

#[derive(Debug, thiserror::Error)]
#[error("not a frame of the fleet protocol: {0}")]
pub struct FrameError(String);

pub fn encode(header: &impl Serialize, payload: &[u8]) -> Bytes {
    let header = serde_json::to_vec(header).expect("a frame has string keys and serializes");
    let mut bytes = BytesMut::with_capacity(header.len() + 1 + payload.len());
    bytes.put_slice(&header);
    bytes.put_u8(b'\n');
    bytes.put_slice(payload);
    bytes.freeze()
}

pub fn decode<T: DeserializeOwned>(mut bytes: Bytes) -> Result<(T, Bytes), FrameError> {
    let end = memchr::memchr(b'\n', &bytes[..bytes.len().min(HEADER_BYTES)]);
    let end = end.ok_or_else(|| FrameError("the header has no end".to_owned()))?;
    let header =
        serde_json::from_slice(&bytes[..end]).map_err(|error| FrameError(error.to_string()))?;
    let payload = bytes.split_off(end + 1);
    Ok((header, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_keeps_its_payload_with_line_ends() {
        let channel = Uuid::from_u128(7);
        let frame = MemberFrame::Output {
            channel,
            offset: 12,
        };
        let bytes = encode(&frame, b"a\nb\n");
        assert!(bytes.starts_with(b"{\"type\":\"output\",\"channel\":\"00000000-"));
        let (decoded, payload) = decode::<MemberFrame>(bytes).unwrap();
        assert_eq!((decoded, &payload[..]), (frame, &b"a\nb\n"[..]));
        let command = Command::Line {
            once: Some("answer/3".to_owned()),
        };
        let frame = GatewayFrame::Command {
            channel,
            number: 2,
            command,
        };
        assert_eq!(
            decode::<GatewayFrame>(encode(&frame, b"")).unwrap().0,
            frame
        );
    }

    #[test]
    fn bytes_that_are_no_frame_are_rejected() {
        for bytes in [
            "",
            "{}",
            "{}\n",
            "{\"type\":\"output\"}\n",
            "noise\n",
            "{\"type\":\"kill\"}\n",
        ] {
            assert!(
                decode::<MemberFrame>(Bytes::copy_from_slice(bytes.as_bytes())).is_err(),
                "{bytes}"
            );
        }
    }
}
