//! A gateway as users run it: the real binary in a folder of its own, spoken to over a real socket.

pub(crate) mod calls;
pub(crate) mod chat_turns;
pub(crate) mod collector;
pub(crate) mod control_groups;
pub(crate) mod figures;
pub(crate) mod follower;
pub(crate) mod gateway;
pub(crate) mod generated;
pub(crate) mod history;
pub(crate) mod lean;
pub(crate) mod log;
pub(crate) mod own_tests;
pub(crate) mod places;
pub(crate) mod prefix_proxy;
pub(crate) mod procfs;
pub(crate) mod proxy;
pub(crate) mod random;
pub(crate) mod replaced;
pub(crate) mod sse;
pub(crate) mod stored;
pub(crate) mod terminal;
pub(crate) mod wait;

pub(crate) use calls::Answer;
pub(crate) use chat_turns::chat_turns;
pub(crate) use figures::figure;
pub(crate) use follower::Follower;
pub(crate) use gateway::{Gateway, Setup};
pub(crate) use history::History;
pub(crate) use own_tests::own_tests;
pub(crate) use random::Random;
pub(crate) use sse::{Event, Events};
pub(crate) use wait::{eventually, is_alive};
