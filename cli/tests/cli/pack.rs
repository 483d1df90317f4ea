//! `adfuse pack`: buffers in, offsets out.

use crate::folder::Folder;

const BUFFERS: &str = "id,lower,upper,size\na,0,3,4\nb,3,9,4\nc,1,4,2\n";
const PACKED: &str = "id,lower,upper,size,offset\na,0,3,4,0\nb,3,9,4,0\nc,1,4,2,4\n";

#[test]
fn packs_into_the_least_peak_or_within_a_capacity() {
    let d = Folder::new();
    d.file("in.csv", BUFFERS);
    for args in ["", "--capacity 6", "--capacity 0.006kB", "--effort 0", "--time-limit 0.5"] {
        let ran = d.run(&format!("pack in.csv {args}"));
        assert_eq!((ran.code, ran.out.as_str()), (0, PACKED), "{args}: {}", ran.err);
        assert!(ran.err.contains("peak 6 bytes, the least possible"), "{}", ran.err);
    }
    assert_eq!(d.pipe("pack -", BUFFERS.as_bytes()).out, PACKED);
    // A packing is a problem whose offsets are fixed: it packs to itself.
    assert_eq!(d.pipe("pack -", PACKED.as_bytes()).out, PACKED);
    let one = d.pipe("pack -", b"id,lower,upper,size\na,0,1,1\n");
    assert!(one.err.contains("peak 1 byte, the least possible"), "{}", one.err);
    let ran = d.run("pack in.csv -o out.csv");
    assert_eq!((ran.code, ran.out.as_str()), (0, ""));
    assert_eq!(d.text("out.csv"), PACKED);
}

#[test]
fn what_does_not_fit_or_is_malformed_says_so_and_writes_nothing() {
    let d = Folder::new();
    d.file("in.csv", BUFFERS).file("bad.csv", "id,lower,upper,size\na,0,x,4\n");
    d.file("short.csv", "id,lower,upper,size\na\n").file("less.csv", "id,lower,upper,size\na,0\n");
    d.file("late.csv", "id,lower,upper,size\na,5,3,4\n").file("none.csv", "");
    d.file("huge.csv", "id,lower,upper,size\na,0,1,18446744073709551615\nb,0,1,1\n");
    d.file("gap.csv", "id,lower,upper,size,gaps\nx,0,1,4,\na,0,9,4,4-2\n");
    d.file("odd.csv", "id,lower,upper,size,alignment,offset\n\na,0,9,4,8,4\n");
    d.file("same.csv", "id,lower,upper,size,offset\na,0,9,4,0\nb,1,2,4,2\n");
    let cases = [
        ("pack gap.csv", 1, "`gap.csv`: gap 1 of `a` (line 3) is not a stretch of its life"),
        ("pack odd.csv", 1, "`odd.csv`: `a` (line 3) is fixed at offset 4"),
        ("pack same.csv", 1, "`a` (line 2) and `b` (line 3) are fixed where they overlap"),
        ("pack in.csv --capacity 5", 1, "do not fit 5 bytes: the least peak found is 6"),
        ("pack in.csv --capacity 1", 1, "do not fit 1 byte: the least peak found is 6"),
        ("pack short.csv", 1, "1 field where the header has 4"),
        ("pack less.csv", 1, "2 fields where the header has 4"),
        ("pack bad.csv", 1, "line 2, column 3"),
        ("pack late.csv", 1, "dies at 3"),
        ("pack none.csv", 1, "header"),
        ("pack huge.csv", 1, "`huge.csv`: the buffers up to `a` (line 2) need more than 2^62"),
        ("pack missing.csv", 2, "cannot read `missing.csv`"),
        ("pack in.csv --time-limit=-1", 2, "--time-limit"),
        ("pack in.csv --capacity many", 2, "--capacity"),
    ];
    for (args, code, message) in cases {
        let ran = d.run(&format!("{args} -o out.csv"));
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args}: {}", ran.err);
        assert!(ran.err.contains(message), "{args}: {}", ran.err);
        assert!(!d.names().contains(&"out.csv".to_string()), "{args}");
    }
}
