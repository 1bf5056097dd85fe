"""Stands in for the company's directory: who has which role, at this moment."""


class Directory:
    def __init__(self):
        self.roles = {"ana": {"refund:approve"}, "ben": set()}

    async def has_role(self, user, role):
        return role in self.roles.get(user, ())


directory = Directory()
