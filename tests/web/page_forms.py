"""The forms of a page, as a browser would send them."""

import re
from html import unescape


def forms(text):
    """The forms of a page: where they go, and their fields."""
    found = []
    for action, body in re.findall(r'<form[^>]* action="([^"]+)"[^>]*>(.*?)</form>', text, re.DOTALL):
        fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', body))
        fields |= dict(re.findall(r'<textarea[^>]* name="([^"]+)"[^>]*>\n(.*?)</textarea>', body, re.DOTALL))
        found.append({unescape(name): unescape(value) for name, value in ({"action": action} | fields).items()})
    return found
