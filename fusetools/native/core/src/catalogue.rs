//! The catalogue: a recording's events and their meaning.

use std::collections::{BTreeMap, BTreeSet};

use crate::events::{Layer, Meaning, Role};
use crate::operations::{Operation, Pattern};

/// Function whose probe is timed to measure a probe's cost; never part of an answer.
const CALIBRATION: &str = "fusetools_calibrate";

/// Shows the peers to which a daemon connects.
const CONNECT: &str = "sock:inet_sock_set_state";

/// Operations of callbacks and kernel functions that are not named after their operation.
const OTHER_NAMES: [(&str, &str); 3] = [
    ("forget_multi", "batch_forget"),
    ("dentry_revalidate", "lookup"),
    ("dir_open", "opendir"),
];

/// Events at a request's begin, its copy to the daemon and its end: the functions of kprobes, then the tracepoint. In
/// some kernels, fuse_request_send has `unique` 0 (fs/fuse/dev.c until 6.14).
const POINTS: [(Role, &[&str], &str); 3] = [
    (
        Role::Begin,
        &[
            "queue_request",
            "queue_request_and_unlock",
            "fuse_dev_queue_req",
        ],
        "fuse:fuse_request_send",
    ),
    (Role::Sent, &["fuse_copy_args"], "fuse:fuse_request_sent"),
    (
        Role::End,
        &["fuse_request_end", "request_end"],
        "fuse:fuse_request_end",
    ),
];

const FIXED: [(&str, Layer, Role); 7] = [
    ("raw_syscalls:sys_enter", Layer::Syscall, Role::SysEnter),
    ("raw_syscalls:sys_exit", Layer::Syscall, Role::SysExit),
    ("ftrace:funcgraph_entry", Layer::Kernel, Role::GraphEntry),
    ("ftrace:funcgraph_exit", Layer::Kernel, Role::GraphExit),
    ("io_uring:io_uring_complete", Layer::Syscall, Role::Fetched),
    (
        "io_uring:io_uring_submit_req",
        Layer::Syscall,
        Role::Committed,
    ),
    (
        "io_uring:io_uring_cqring_wait",
        Layer::Syscall,
        Role::RingWait,
    ),
];

const TASKS: [(&str, Role); 3] = [
    ("sched:sched_switch", Role::Switch),
    ("sched:sched_waking", Role::Waking),
    ("signal:signal_generate", Role::Signal),
];

/// Rows of the catalogue, and the recording's events.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    pub rows: Vec<Meaning>,
    events: BTreeSet<String>,
}

/// Calls that a question is about.
pub struct Selection {
    /// Operations and functions; all if empty.
    pub patterns: Vec<Pattern>,
    /// All if empty.
    pub layers: Vec<Layer>,
    /// Only those of some callers or mounts.
    pub callers: bool,
    /// Functions of function_graph, which has one event for all.
    pub graphed: Vec<String>,
    /// Kernel functions by the operation of the requests made inside a call.
    pub by_operation: bool,
    /// Also the time from a daemon's read to its reply.
    pub windows: bool,
    /// Also callbacks' time before and after their reply.
    pub parts: bool,
    /// Also when requests were copied to the daemon.
    pub sent: bool,
}

impl Selection {
    fn wants(&self, layer: Layer) -> bool {
        self.layers.is_empty() || self.layers.contains(&layer)
    }

    fn matches(&self, operation: &str, function: &str) -> bool {
        let mut patterns = self.patterns.iter();
        patterns.any(|matches| matches(operation) || matches(function))
    }

    /// Return whether the patterns match only functions, so that requests are not needed. A pattern that matches nothing
    /// here may be a system call.
    fn is_about_functions(&self, rows: &[Meaning]) -> bool {
        let graphed = self.graphed.iter().map(String::as_str);
        let graphed = graphed.filter(|_| self.wants(Layer::Kernel));
        let functions = rows.iter().map(|row| row.function.as_str());
        let functions: Vec<&str> = functions.chain(graphed).collect();
        let operations: Vec<Operation> = Operation::of_bits(u128::MAX).collect();
        !self.patterns.is_empty()
            && self.patterns.iter().all(|matches| {
                functions.iter().any(|name| matches(name))
                    && !operations
                        .iter()
                        .any(|one| matches(one.name()) || matches(&one.constant()))
            })
    }
}

impl Catalogue {
    pub fn new(rows: Vec<Meaning>, events: Vec<String>) -> Catalogue {
        Catalogue {
            rows,
            events: events.into_iter().collect(),
        }
    }

    /// Return the same recording with other rows.
    fn with(&self, rows: Vec<Meaning>) -> Catalogue {
        Catalogue {
            rows,
            events: self.events.clone(),
        }
    }

    /// Add further rows.
    pub fn plus(&self, rows: &[Meaning]) -> Catalogue {
        let new = rows.iter().filter(|row| !self.rows.contains(row));
        self.with(self.rows.iter().chain(new).cloned().collect())
    }

    /// Add a row with a role to each of these events. It comes after the other rows of the same event.
    pub fn with_events(&self, role: Role, events: &[String]) -> Catalogue {
        let new = events.iter();
        let new = new.map(|event| unnamed(event, Layer::Syscall, role));
        self.with(self.rows.iter().cloned().chain(new).collect())
    }

    /// Add rows of the events that the recording does not describe, inferred from their names. `graphed`: functions
    /// that function_graph may have recorded, instead of kprobes.
    pub fn inferred(&self, graphed: &[String]) -> Catalogue {
        let mut all = self.plus(&self.by_convention());
        if all.rows.iter().any(|row| row.role == Role::GraphEntry) {
            let graphed: BTreeSet<&str> = graphed.iter().map(|name| bare(name)).collect();
            all.rows.retain(|row| {
                row.layer != Layer::Kernel
                    || !matches!(row.role, Role::Entry | Role::Return)
                    || !graphed.contains(row.function.as_str())
            });
        }
        all
    }

    /// Return the rows without entries of functions whose duration is unknown: neither a return nor a reply is probed.
    pub fn timed(&self) -> Catalogue {
        let ends = self.rows.iter();
        let ends = ends.filter(|row| matches!(row.role, Role::Return | Role::Reply));
        let ends: BTreeSet<_> = ends.map(|row| (row.layer, row.function.as_str())).collect();
        let rows = self.rows.iter().filter(|row| {
            row.role != Role::Entry || ends.contains(&(row.layer, row.function.as_str()))
        });
        self.with(rows.cloned().collect())
    }

    /// Infer the rows of the events that the recording does not describe.
    fn by_convention(&self) -> Vec<Meaning> {
        let described: BTreeSet<&str> = self.rows.iter().map(|row| row.event.as_str()).collect();
        let names = self.events.iter().map(String::as_str);
        let names: BTreeSet<&str> = names.filter(|name| !described.contains(name)).collect();
        let is_known = |role| self.rows.iter().any(|row| row.role == role);
        let kprobe = |functions: &[&str]| {
            let mut events = functions.iter().map(|name| format!("fuse_kernel:{name}"));
            events.find(|event| names.contains(event.as_str()))
        };
        let fixed = FIXED.map(|(event, layer, role)| (event.to_owned(), (layer, role)));
        let mut fixed: BTreeMap<String, (Layer, Role)> = fixed.into_iter().collect();
        // With a kprobe at the begin, the others are joined to it by the request's address.
        let by_kprobe = kprobe(POINTS[0].1).is_some() && !is_known(Role::Begin);
        for (role, functions, tracepoint) in POINTS {
            if !is_known(role) {
                let event = kprobe(functions).filter(|_| by_kprobe);
                let event = event.unwrap_or_else(|| tracepoint.to_owned());
                fixed.insert(event, (Layer::Request, role));
            }
        }
        let mut rows = Vec::new();
        for event in names {
            if let Some((layer, role)) = fixed.get(event) {
                rows.push(unnamed(event, *layer, *role));
            }
            let (group, name) = event.split_once(':').unwrap_or((event, ""));
            let layer = match group {
                "fuse_daemon" => Layer::Daemon,
                "fuse_kernel" => Layer::Kernel,
                _ => continue,
            };
            let (function, role) = match name.split_once("__return") {
                Some((function, _)) => (function, Role::Return),
                None => (name, Role::Entry),
            };
            if function != CALIBRATION {
                rows.push(Meaning {
                    event: event.to_owned(),
                    layer,
                    function: function.to_owned(),
                    operation: operation_of(function).to_owned(),
                    role,
                });
            }
        }
        rows
    }

    /// Return the rows for requests' stories.
    pub fn requests(&self) -> Catalogue {
        let points = self.rows.iter().filter(|row| row.layer == Layer::Request);
        let points: BTreeSet<&str> = points.map(|row| row.event.as_str()).collect();
        let is_needed =
            |row: &&Meaning| row.layer != Layer::Kernel || !points.contains(row.event.as_str());
        let mut rows: Vec<Meaning> = self.rows.iter().filter(is_needed).cloned().collect();
        for (event, role) in TASKS {
            if self.events.contains(event) && !self.rows.iter().any(|row| row.event == event) {
                rows.push(unnamed(event, Layer::Syscall, role));
            }
        }
        rows.extend(self.lengths());
        self.with(rows)
    }

    /// Return the rows for requests' stories and for file names.
    pub fn named(&self) -> Catalogue {
        let mut named = self.requests();
        for row in &self.rows {
            let mut also = |role| {
                named.rows.push(Meaning {
                    role,
                    ..row.clone()
                })
            };
            match (row.layer, row.role, row.function.as_str()) {
                (Layer::Daemon, Role::Entry, _) => also(Role::Name),
                (_, Role::Reply, "fuse_reply_entry") => also(Role::Inode),
                (_, Role::Reply, "fuse_reply_open") => also(Role::Handle),
                (_, Role::Reply, "fuse_reply_create") => {
                    also(Role::Inode);
                    also(Role::Handle);
                }
                _ => {}
            }
        }
        if self.events.contains(CONNECT) {
            let row = unnamed(CONNECT, Layer::Syscall, Role::Connect);
            named.rows.push(row);
        }
        named
    }

    /// Return further rows of the events that hold the lengths of requests and replies. They come after the rows of
    /// these events' main roles.
    fn lengths(&self) -> Vec<Meaning> {
        let rows = self.rows.iter().filter(|row| {
            matches!(row.role, Role::Begin | Role::End) && row.event.starts_with("fuse:")
        });
        rows.map(|row| unnamed(&row.event, Layer::Request, Role::Length))
            .collect()
    }

    /// Return the rows that a question about calls needs. Other events are not decoded.
    pub fn select(&self, selection: &Selection) -> Catalogue {
        let all = &self.rows;
        let wants = |layer| selection.wants(layer);
        let is_call = |row: &&Meaning| matches!(row.role, Role::Entry | Role::Return);
        let mut rows: Vec<Meaning> = all
            .iter()
            .filter(|row| is_call(row) || row.role == Role::Reply)
            .filter(|row| wants(row.layer))
            // Without symbols, a reply's operation is that of its request.
            .filter(|row| {
                selection.patterns.is_empty()
                    || row.role == Role::Reply
                    || selection.matches(&row.operation, &row.function)
            })
            .cloned()
            .collect();
        let replies = rows.iter().any(|row| row.role == Role::Reply);
        let about_requests = !selection.is_about_functions(&rows);
        if wants(Layer::Kernel) {
            // A function that is selected by its requests' operation can have any name.
            let any = about_requests && selection.by_operation;
            let mut names = selection.graphed.iter();
            let graphed = about_requests || names.any(|name| selection.matches("", name));
            let more = all.iter().filter(|row| row.layer == Layer::Kernel);
            let more = more.filter(|row| match row.role {
                Role::Entry | Role::Return => any && !rows.contains(row),
                Role::GraphEntry | Role::GraphExit => graphed && !rows.contains(row),
                _ => false,
            });
            let more: Vec<Meaning> = more.cloned().collect();
            rows.extend(more);
        }
        let kernel = selection.by_operation && rows.iter().any(|row| row.layer == Layer::Kernel);
        let windows = selection.windows && about_requests;
        // A caller that returns without an answer was interrupted.
        let of_callers = wants(Layer::Syscall) || wants(Layer::Request);
        let syscalls = replies || windows || (about_requests && of_callers);
        let requests = syscalls || selection.callers || kernel;
        let mut roles = Vec::new();
        if requests {
            roles.extend([Role::Begin, Role::End]);
        }
        // At a kprobe at the begin, a request often has no number yet, and a tracepoint at the end has only the number.
        // The copy to the daemon joins the two. It also finds a daemon call's caller.
        let is_at = |role, group: &str| {
            let mut points = all.iter().filter(|row| row.layer == Layer::Request);
            let last = points.rfind(|row| row.role == role);
            last.is_some_and(|row| row.event.split(':').next() == Some(group))
        };
        let joined = selection.callers || is_at(Role::End, "fuse");
        if requests && is_at(Role::Begin, "fuse_kernel") && joined {
            roles.push(Role::Sent);
        }
        if selection.sent {
            roles.push(Role::Sent);
        }
        if syscalls {
            roles.extend([Role::SysEnter, Role::SysExit]);
        }
        if replies || windows {
            // They show the thread that read the request.
            roles.extend([Role::Sent, Role::Fetched, Role::Committed, Role::RingWait]);
        }
        let daemon = |role| move |row: &Meaning| row.layer == Layer::Daemon && row.role == role;
        if selection.parts && rows.iter().any(daemon(Role::Return)) {
            // They show when a callback replies.
            roles.extend([Role::End, Role::SysEnter]);
        }
        if rows.iter().any(daemon(Role::Entry)) {
            // For calls without their request's number.
            roles.push(Role::Taken);
        }
        let points = all.iter().filter(|row| roles.contains(&row.role));
        rows.extend(points.cloned());
        if selection.windows {
            rows.extend(self.lengths());
        }
        self.with(rows)
    }

    /// Return the rows with these roles in the kernel layer, for a call tree: function_graph's, or else those of
    /// kprobes.
    pub fn kernel(&self) -> Catalogue {
        let rows = |roles: [Role; 2]| {
            let rows = self.rows.iter();
            let rows = rows.filter(|row| row.layer == Layer::Kernel && roles.contains(&row.role));
            rows.cloned().collect::<Vec<_>>()
        };
        let graph = rows([Role::GraphEntry, Role::GraphExit]);
        self.with(match graph.is_empty() {
            true => rows([Role::Entry, Role::Return]),
            false => graph,
        })
    }
}

fn unnamed(event: &str, layer: Layer, role: Role) -> Meaning {
    Meaning {
        event: event.to_owned(),
        layer,
        function: String::new(),
        operation: String::new(),
        role,
    }
}

/// Return the FUSE operation after which a callback or a kernel function is named, or "".
pub fn operation_of(function: &str) -> &'static str {
    let function = bare(function);
    let prefixes = ["", "cvmfs_", "stub_", "fuse_lib_", "fuse_"];
    let names = prefixes
        .iter()
        .filter_map(|prefix| function.strip_prefix(prefix));
    let known = names.map(|name| {
        let other = OTHER_NAMES.iter().find(|(known, _)| *known == name);
        Operation::of_name(other.map_or(name, |(_, operation)| operation))
    });
    let mut known = known.filter(|operation| *operation != Operation::UNKNOWN);
    known.next().map_or("", Operation::name)
}

/// Remove the compiler's suffix (`.isra.0`) from a kernel function's name.
fn bare(function: &str) -> &str {
    function.split('.').next().unwrap_or(function)
}

#[cfg(test)]
mod tests;
