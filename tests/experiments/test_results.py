"""Each table of docs/results names the rooms that its figures depend on."""

from experiments import results


def test_every_table_names_rooms_that_exist() -> None:
    rooms = {room for name in results.names() for room in results.rooms_of(name)}
    assert rooms
    assert not [room for room in rooms if not (results.ROOT / room).is_dir()]
