use super::*;

fn row(event: &str, layer: Layer, function: &str, operation: &str, role: Role) -> Meaning {
    Meaning {
        function: function.to_owned(),
        operation: operation.to_owned(),
        ..unnamed(event, layer, role)
    }
}

fn events(catalogue: &Catalogue) -> Vec<(&str, Role)> {
    let rows = catalogue.rows.iter();
    rows.map(|row| (row.event.as_str(), row.role)).collect()
}

fn names(events: &[&str]) -> Vec<String> {
    events.iter().map(|event| event.to_string()).collect()
}

#[test]
fn a_kprobe_at_the_begin_goes_with_kprobes_at_the_end() {
    let all = [
        "fuse:fuse_request_end",
        "fuse_kernel:fuse_request_end",
        "fuse_kernel:queue_request",
    ];
    let points = |events: &[&str]| {
        let catalogue = Catalogue::new(Vec::new(), names(events)).inferred(&[]);
        let rows = catalogue.rows.into_iter();
        let rows = rows.filter(|row| row.layer == Layer::Request);
        rows.map(|row| row.event).collect::<Vec<_>>()
    };
    assert_eq!(points(&all), all[1..]);
    assert_eq!(points(&all[..2]), all[..1]);
}

#[test]
fn described_events_are_not_inferred() {
    let described = vec![row("fuse_daemon:x", Layer::Daemon, "y", "", Role::Entry)];
    let events = names(&["fuse_daemon:x", "fuse_daemon:fusetools_calibrate"]);
    let catalogue = Catalogue::new(described.clone(), events).inferred(&[]);
    assert_eq!(catalogue.rows, described);
}

#[test]
fn function_graph_replaces_kprobes_of_its_functions() {
    let recorded = [
        "ftrace:funcgraph_entry",
        "fuse_kernel:fuse_lookup",
        "fuse_kernel:request_end",
    ];
    let catalogue = Catalogue::new(Vec::new(), names(&recorded));
    let graphed = names(&["fuse_lookup.isra.0"]);
    let found = catalogue.inferred(&graphed);
    let expected = [
        ("ftrace:funcgraph_entry", Role::GraphEntry),
        ("fuse_kernel:request_end", Role::Entry),
    ];
    assert_eq!(events(&found), expected);
}

#[test]
fn stories_need_switches_and_names_need_connections_and_replies() {
    let recorded = names(&["sched:sched_switch", CONNECT]);
    let described = vec![
        row(
            "fuse:fuse_request_send",
            Layer::Request,
            "",
            "",
            Role::Begin,
        ),
        row("d:cb", Layer::Daemon, "cb", "lookup", Role::Entry),
        row("d:re", Layer::Daemon, "fuse_reply_create", "", Role::Reply),
    ];
    let catalogue = Catalogue::new(described, recorded);
    let stories = [
        ("fuse:fuse_request_send", Role::Begin),
        ("d:cb", Role::Entry),
        ("d:re", Role::Reply),
        ("sched:sched_switch", Role::Switch),
        ("fuse:fuse_request_send", Role::Length),
    ];
    assert_eq!(events(&catalogue.requests()), stories);
    let more = [
        ("d:cb", Role::Name),
        ("d:re", Role::Inode),
        ("d:re", Role::Handle),
        (CONNECT, Role::Connect),
    ];
    assert_eq!(events(&catalogue.named())[stories.len()..], more);
}

#[test]
fn entries_without_an_end_have_no_duration() {
    let rows = vec![
        row("d:a", Layer::Daemon, "a", "", Role::Entry),
        row("d:b", Layer::Daemon, "b", "", Role::Entry),
        row("d:b2", Layer::Daemon, "b", "", Role::Return),
        row("k:b", Layer::Kernel, "b", "", Role::Entry),
    ];
    let timed = Catalogue::new(rows, Vec::new()).timed();
    assert_eq!(
        events(&timed),
        [("d:b", Role::Entry), ("d:b2", Role::Return)]
    );
}

#[test]
fn operations_are_in_the_names_of_functions() {
    for (function, operation) in [
        ("cvmfs_lookup", "lookup"),
        ("fuse_lib_getattr", "getattr"),
        ("fuse_dentry_revalidate.isra.0", "lookup"),
        ("cvmfs_forget_multi", "batch_forget"),
        ("queue_request", ""),
    ] {
        assert_eq!(operation_of(function), operation, "{function}");
    }
}
