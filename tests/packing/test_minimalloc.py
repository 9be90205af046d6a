import stat

import numpy as np
import pytest

from stowplan import minimalloc
from stowplan.errors import FormatError
from stowplan.packing import Problem

PLAIN = "id,lower,upper,size\n"


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "problem.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.mark.parametrize(
    "text",
    [
        "id,lower,upper,size\na,0,3,4\nb,2,9,5\n",
        "size,upper,lower,id\n4,3,0,a\n5,9,2,b\n",
        "buffer,start,end,size\na,0,2,4\nb,2,8,5\n",  # end is inclusive
        "buffer_id,begin,upper,size\na,0,3,4\nb,2,9,5",
        "\ufeffid,lower,upper,size\r\n a , 0,3 ,4\r\nb,2,9,5\r\n\r\n",
        'id,lower,upper,size,note\na,0,3,4,"more, columns"\nb,2,9,5,are skipped\n',
    ],
)
def test_spellings(write, text):
    table = minimalloc.read(write(text))
    assert table.id == ("a", "b")
    assert table.lower.tolist() == [0, 2]
    assert table.upper.tolist() == [3, 9]
    assert table.size.tolist() == [4, 5]
    assert table.alignment.tolist() == [1, 1]
    assert table.hint.tolist() == [-1, -1]
    assert table.offset is None
    assert table.gaps.shape == (0, 5)


def test_gaps_end_inclusively_where_lifetimes_do(write):
    table = minimalloc.read(write("id,start,end,size,gaps\na,0,9,4,3-5 6-6\n"))
    assert table.upper.tolist() == [10]
    assert table.gaps.tolist() == [[0, 3, 6, 0, 0], [0, 6, 7, 0, 0]]


def test_a_header_alone_is_a_problem_without_blocks(write):
    assert minimalloc.read(write(PLAIN)).id == ()


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "the file is empty; expected a header with the columns id"),
        ("id,lower,size\n", 1, "the column 'upper' is missing"),
        ("id,lower,start,upper,size\n", 1, "the column 'start' appears twice"),
        (PLAIN + "a,0,3,4\nb,0,3,-4\n", 3, "size -4 is negative"),
        (PLAIN + "a,3,3,4\n", 2, "the lifetime is empty: upper 3; expected more than lower"),
        ("id,lower,end,size\na,3,2,4\n", 2, "the lifetime is empty: end 2; expected no less than lower"),
        (PLAIN + "a,0,3,\n", 2, "size '' is not an integer"),
        (PLAIN + "a,0,1_0,4\n", 2, "upper '1_0' is not an integer"),
        (PLAIN + f"a,0,3,{2**63}\n", 2, "is not an integer of 64 bits"),
        (PLAIN + "\n\na,0,3\n", 4, "3 fields; expected 4"),
        (f"id,lower,end,size\na,0,{2**63 - 1},4\n", 2, "out of range"),
        ("id,lower,upper,size,alignment\na,0,3,4,0\n", 2, "alignment 0; expected 1 or more"),
        ("id,lower,upper,size,hint\na,0,3,4,-2\n", 2, "hint -2"),
        ("id,lower,upper,size,offset\na,0,3,4,-2\n", 2, "offset -2"),
        ("id,lower,upper,size,alignment,offset\na,0,3,4,8,4\n", 2, "offset 4 is not a multiple"),
        ("id,lower,upper,size,gaps\na,0,9,4,3\n", 2, "the gap '3' is malformed; expected t0-t1"),
        ("id,lower,upper,size,gaps\na,0,9,4,5-5\n", 2, "is empty or leaves the lifetime"),
        ("id,lower,upper,size,gaps\na,0,9,4,5-12\n", 2, r"leaves the lifetime \[0, 9\)"),
        ("id,lower,upper,size,gaps\na,0,9,4,3-5@0:5\n", 2, "leaves the block's 4 bytes"),
        ("id,lower,upper,size,gaps\na,0,9,4,1-4 3-5\n", 2, "the gaps at 1 and 3 overlap"),
        (b"id,lower,upper,size\n\xff\xfe,0,1,2\n", None, "not a text file in UTF-8"),
        (b'{"traceEvents": [{"ph": "X"}]}', None, r"a Chrome trace \(record .*; expected a header with"),
        (PLAIN + '"a,0,3,4\n', 2, "not a CSV file"),
    ],
)
def test_bad_files_name_the_file_the_line_and_what_was_expected(write, text, line, message):
    path = write(text)
    with pytest.raises(FormatError, match=message) as error:
        minimalloc.read(path)
    assert error.value.line == line
    where = f"{path}: " if line is None else f"{path}, line {line}: "
    assert str(error.value).startswith(where)


def test_what_is_written_is_read_back(write, tmp_path):
    header = "id,lower,upper,size,alignment,hint,gaps,offset\n"
    text = header + "a,-5,20,64,8,16,-3--1 12-15@0:8,24\nb,0,1,4,1,-1,,-1\n"
    path = tmp_path / "copy.csv"
    minimalloc.write(path, minimalloc.read(write(text)))
    assert path.read_text() == text


def test_columns_that_say_nothing_are_left_out(write, tmp_path):
    path = tmp_path / "copy.csv"
    minimalloc.write(path, minimalloc.read(write("id,start,end,size,alignment,hint,gaps\na,0,2,4,1,-1,\n")))
    assert path.read_text() == "id,lower,upper,size\na,0,3,4\n"


def test_any_id_is_written_and_read_back(write, tmp_path):
    names = ("a,b", "a\nb", "a\rb", 'the "first"', '"', "plain")
    path = tmp_path / "p.csv"
    Problem(*np.ones((2, 6)), [2] * 6, id=names).to_csv(path)
    assert minimalloc.read(path).id == names


def test_a_link_is_written_through_and_the_mode_is_kept(write, tmp_path):
    table = minimalloc.read(write(PLAIN + "a,0,3,4\n"))
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    minimalloc.write(link, table)
    assert link.is_symlink()
    assert real.read_text() == PLAIN + "a,0,3,4\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
