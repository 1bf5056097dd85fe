"""Messages in the shape of the API."""

from hypothesis import given
from hypothesis import strategies as st

from lictor.models import Call, assistant, system, tool_message, user, well_formed


def test_messages_have_the_shape_of_the_api():
    """Each helper gives a plain dict that the API takes."""
    assert system("Be brief.") == {"role": "system", "content": "Be brief."}
    assert user("Hi") == {"role": "user", "content": "Hi"}
    assert assistant("Hello") == {"role": "assistant", "content": "Hello"}
    assert tool_message("c1", "42") == {"role": "tool", "tool_call_id": "c1", "content": "42"}


def test_an_assistant_message_lists_its_calls():
    """Calls are written with the raw text of their arguments."""
    message = assistant(None, [Call("c1", "add", '{"a":1}'), Call(None, "now", "")])
    assert message["content"] is None
    assert [call["id"] for call in message["tool_calls"]] == ["c1", ""]
    assert message["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a":1}'}


@given(st.text(alphabet=st.characters(codec=None), max_size=30))
def test_well_formed_text_can_be_encoded(text):
    """G15: any text becomes encodable; encodable text stays as it is; doing it twice changes nothing."""
    cleaned = well_formed(text)
    assert cleaned.encode().decode() == cleaned
    assert well_formed(cleaned) == cleaned
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert cleaned == text


def test_well_formed_keeps_neighbours_of_a_lone_half():
    """A lone half is replaced by itself: the characters around it stay, and pairs become one."""
    assert well_formed("a\ud83db") == "a\ufffdb"
    assert well_formed("\udf78x") == "\ufffdx"
    assert well_formed("\ud83d\ud83c\udf78") == "\ufffd\U0001f378"
