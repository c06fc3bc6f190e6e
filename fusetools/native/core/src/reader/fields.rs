//! Fields that are taken from an event, and their places.

use super::*;
use crate::events::RESENT;
use crate::format::record::OFF_CPU;

/// Field that identifies the probe in an event that several share.
const PROBE: &str = "probe";

/// Place of a number in the raw data. `size` 0: absent.
#[derive(Clone, Copy, Default)]
pub(super) struct Number {
    pub(super) offset: u32,
    pub(super) size: u8,
    pub(super) signed: bool,
}

impl Number {
    pub(super) fn new(field: &Field) -> Option<Number> {
        let size = u8::try_from(field.size)
            .ok()
            .filter(|size| matches!(size, 1 | 2 | 4 | 8))?;
        let offset = u32::try_from(field.offset).ok()?;
        (field.shape == Shape::Number).then_some(Number {
            offset,
            size,
            signed: field.signed,
        })
    }

    #[inline(always)]
    pub(super) fn read(&self, raw: &[u8]) -> Option<u64> {
        let at = self.offset as usize;
        match self.size {
            0 => Some(ABSENT),
            8 => u64_at(raw, at),
            4 => u32_at(raw, at).map(|n| {
                if self.signed {
                    n as i32 as u64
                } else {
                    n as u64
                }
            }),
            _ => {
                let bits = number(raw.get(at..at + self.size as usize)?)?;
                let unused = 64 - 8 * u32::from(self.size);
                Some(if self.signed {
                    (((bits << unused) as i64) >> unused) as u64
                } else {
                    bits
                })
            }
        }
    }
}

/// Values to take from an event's samples.
pub(super) struct Take {
    pub(super) kind: u32,
    pub(super) v: [Number; 4],
    /// It takes the sample's stack, and nothing else.
    pub(super) stack: bool,
    /// It takes the sample's stack, too.
    pub(super) with_stack: bool,
    pub(super) role: Role,
    /// Field of a name (Role::Name, Role::Asked, Role::Listed).
    pub(super) name: Option<Field>,
    /// Field used if `name` is empty.
    pub(super) other: Option<Field>,
    pub(super) attribute: Option<Field>,
    /// The stack is that of a wait by `perf record --off-cpu`.
    pub(super) off_cpu: bool,
    /// `v[0]` is a request's number.
    numbered: bool,
    /// Field with the probe's number, and this probe's number, in an event that several share.
    probe: Option<(Number, u64)>,
}

impl Take {
    pub(super) fn new(kind: u32, meaning: &Meaning, format: Option<&Format>) -> Take {
        // Several names: probes made by hand use others.
        let names: [&[&str]; 4] = match meaning.role {
            Role::Entry | Role::Return if meaning.layer == Layer::Kernel => {
                [&["unique"], &[], &[], &["req"]]
            }
            Role::Entry => [&["unique"], &["ino"], &["size"], &["off"]],
            Role::Return | Role::Taken => [&["unique"], &[], &[], &[]],
            Role::Reply | Role::Inode | Role::Listed => [&["unique"], &["ino"], &[], &[]],
            Role::Handle => [&["unique"], &["fh"], &[], &[]],
            Role::Name => [&["unique"], &["ino"], &["fh"], &[]],
            Role::Asked => [&["unique"], &["nodeid"], &["opcode"], &["connection"]],
            Role::Sized => [&["unique"], &["nodeid"], &["size"], &["off"]],
            Role::About => [&["unique"], &["nodeid"], &[], &["connection"]],
            Role::Answered => [&["unique"], &["ino"], &[], &["connection"]],
            Role::Forgotten => [&[], &["ino"], &[], &["connection"]],
            Role::GraphEntry => [&["func"], &["depth"], &[], &[]],
            Role::GraphExit => [&["func"], &["depth"], &["calltime"], &["rettime"]],
            Role::Begin => [&["unique"], &["connection"], &["opcode"], &["req"]],
            Role::Sent => [&["unique"], &["connection"], &["write", "wr"], &["req"]],
            Role::End => [&["unique"], &["connection"], &["error", "err"], &["req"]],
            Role::SysEnter => [&["id"], &[], &[], &[]],
            Role::SysExit => [&["id"], &["ret"], &[], &[]],
            Role::Switch => [&["prev_pid"], &["prev_state"], &["next_pid"], &[]],
            Role::Waking => [&["pid"], &["common_flags"], &[], &[]],
            Role::Fetched => [&["ctx"], &["user_data"], &["res"], &[]],
            Role::Committed => [&["ctx"], &["user_data"], &["opcode"], &["sq_thread"]],
            Role::RingWait => [&["ctx"], &[], &[], &[]],
            Role::Signal => [&["sig"], &["pid"], &["result"], &["code"]],
            Role::Connect => [&["dport"], &[], &[], &[]],
            Role::Stack | Role::Sample => [&[], &[], &[], &[]],
            Role::Length => [&["unique"], &["connection"], &["len"], &["req"]],
        };
        let find = |names: &[&str]| {
            let field = names.iter().find_map(|name| format?.field(name));
            field.and_then(Number::new).unwrap_or_default()
        };
        let named = matches!(meaning.role, Role::Name | Role::Asked | Role::Listed);
        let text = |name| format.filter(|_| named)?.field(name).cloned();
        let mut v = names.map(find);
        if matches!(meaning.role, Role::End | Role::Fetched) {
            // As 32 bits: with a sign, -1 (EPERM) would look like a missing field.
            v[2].signed = false;
        }
        if meaning.role == Role::Signal {
            v[3].signed = false; // tgkill(2)'s is negative
        }
        if meaning.role == Role::SysEnter {
            let arguments = format.and_then(|format| format.field("args"));
            let arguments = arguments.filter(|field| field.size == 48);
            if let Some(offset) = arguments.and_then(|field| u32::try_from(field.offset).ok()) {
                let argument = |number: u32| Number {
                    offset: offset.saturating_add(8 * number),
                    size: 8,
                    signed: false,
                };
                (v[1], v[2], v[3]) = (argument(0), argument(2), argument(1));
            }
        }
        if meaning.role == Role::Connect {
            let address = format.and_then(|format| format.field("daddr_v6"));
            let address = address.filter(|field| field.size == 16);
            if let Some(offset) = address.and_then(|field| u32::try_from(field.offset).ok()) {
                // 16 bytes, for IPv4 ::ffff:a.b.c.d: both halves as they are.
                let half = |offset| Number {
                    offset,
                    size: 8,
                    signed: false,
                };
                (v[1], v[2]) = (half(offset), half(offset.saturating_add(8)));
            }
        }
        Take {
            kind,
            v,
            numbered: names[0] == ["unique"],
            stack: meaning.role == Role::Stack,
            with_stack: false,
            off_cpu: meaning.role == Role::Stack && meaning.event == OFF_CPU,
            role: meaning.role,
            name: text("name"),
            other: text("other"),
            attribute: text("attribute"),
            probe: meaning.of_bundle().1.map(|number| (find(&[PROBE]), number)),
        }
    }

    /// Give a request that the kernel sends again its number of before, and mark its end (`RESENT`).
    #[inline(always)]
    pub(super) fn renumber(&self, v: &mut [u64; 4]) {
        if self.numbered && v[0] >> 63 != 0 && v[0] != ABSENT {
            v[0] &= ABSENT >> 1;
            if self.role == Role::End {
                v[2] |= RESENT;
            }
        }
    }

    /// Return whether the sample belongs to this probe.
    #[inline(always)]
    pub(super) fn applies(&self, raw: &[u8]) -> bool {
        self.probe
            .is_none_or(|(field, number)| field.read(raw) == Some(number))
    }
}
